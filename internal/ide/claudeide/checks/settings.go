package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pollux/internal/doctor"
	"pollux/internal/ide/asking"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/disk"
)

// A settings has what Claude Code's settings say about companions and diffs.
type settings struct {
	AutoConnect bool `json:"autoConnectIde"`
	// DiffTool is "auto", "terminal", or empty if it is not set, which means "auto".
	DiffTool string `json:"diffTool"`
	errs     []error
}

// maxSettings bounds a file of settings, in bytes.
const maxSettings = 64 << 20

// ClaudeHome returns the directory of Claude Code's settings.
func ClaudeHome() (string, error) {
	if dir := os.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".claude"), err
}

// loadSettings reads the settings of a Claude Code that starts in a directory.
func loadSettings(dir string) (all settings) {
	home, err := ClaudeHome()
	if os.Getenv("CLAUDE_CONFIG_DIR") == "" {
		home = filepath.Dir(home)
	}
	path := filepath.Join(home, ".claude.json")
	var data []byte
	if err == nil {
		data, err = disk.ReadFile(path, maxSettings)
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		all.errs = append(all.errs, fmt.Errorf("%s: %s", path, doctor.Reason(err)))
	}
	for _, set := range claudeide.Settings(asking.Start{Dir: dir, Getenv: os.Getenv}) {
		if set.Err != nil {
			all.errs = append(all.errs, set.Err)
		}
	}
	return all
}
