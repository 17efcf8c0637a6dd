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

// loadSettings reads the settings of a Claude Code that starts in a directory.
func loadSettings(dir string) (all settings) {
	start := asking.Start{Dir: dir, Getenv: os.Getenv}
	if home := start.Home("CLAUDE_CONFIG_DIR", ""); home != "" {
		path := filepath.Join(home, ".claude.json")
		data, err := disk.ReadFile(path, maxSettings)
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			all.errs = append(all.errs, fmt.Errorf("%s: %s", path, doctor.Reason(err)))
		}
	}
	for _, set := range claudeide.Settings(start) {
		if set.Err != nil {
			all.errs = append(all.errs, set.Err)
		}
	}
	return all
}
