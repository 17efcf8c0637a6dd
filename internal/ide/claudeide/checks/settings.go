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
	AutoConnect bool
	// DiffTool is "auto", "terminal", or empty if it is not set, which means "auto".
	DiffTool string
	errs     []error
}

// maxSettings bounds a file of settings, in bytes.
const maxSettings = 64 << 20

// claudeHome returns the directory of Claude Code's settings.
func claudeHome(getenv func(string) string) (string, error) {
	if dir := getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".claude"), err
}

// loadSettings reads the settings of a Claude Code that starts in the search's folder.
func loadSettings(s claudeide.Search) (all settings) {
	home, err := claudeHome(s.Getenv)
	if err != nil {
		all.errs = append(all.errs, err)
		return all
	}
	config := filepath.Join(filepath.Dir(home), ".claude.json")
	if s.Getenv("CLAUDE_CONFIG_DIR") != "" {
		config = filepath.Join(home, ".claude.json")
	}
	var state struct {
		AutoConnectIde bool
		DiffTool       string
	}
	all.read(config, &state)
	all.AutoConnect, all.DiffTool = state.AutoConnectIde, state.DiffTool
	_, _, errs := claudeide.PermissionMode(asking.Start{Dir: s.Dir, Getenv: s.Getenv})
	all.errs = append(all.errs, errs...)
	return all
}

// read reads a file, which need not exist.
func (s *settings) read(path string, v any) {
	data, err := disk.ReadFile(path, maxSettings)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %s", path, doctor.Reason(err)))
	}
}
