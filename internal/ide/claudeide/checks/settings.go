package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"pollux/internal/doctor"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys"
)

// A settings has what Claude Code's settings say about companions and diffs.
type settings struct {
	AutoConnect bool
	// DiffTool is "auto", "terminal", or empty if it is not set, which means "auto".
	DiffTool string
	// Mode is the permission mode at the start, empty if Claude Code chooses. ModeFrom is
	// the file that sets it.
	Mode, ModeFrom string
	errs           []error
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
	for _, layer := range layers(home, s.Dir) {
		var file struct {
			Permissions struct{ DefaultMode string }
		}
		all.read(layer.path, &file)
		if mode := file.Permissions.DefaultMode; mode != "" && all.ModeFrom == "" {
			all.Mode, all.ModeFrom = layer.allow(mode), layer.path
		}
	}
	return all
}

// A layer is a file of settings.
type layer struct {
	path       string
	repository bool // it may come with the project
}

// allow returns the mode that Claude Code starts in if the file sets mode. A repository
// may not turn off the questions: Claude Code then starts as if there were no settings,
// or in its manual mode.
func (l layer) allow(mode string) string {
	switch {
	case l.repository && mode == "auto":
		return ""
	case l.repository && mode == "bypassPermissions":
		return "default"
	}
	return mode
}

// layers returns the files of settings, the strongest first.
func layers(home, dir string) []layer {
	managed := map[string]string{
		"darwin": "/Library/Application Support/ClaudeCode", "windows": `C:\Program Files\ClaudeCode`,
	}[runtime.GOOS]
	if managed == "" {
		managed = "/etc/claude-code"
	}
	return []layer{
		{filepath.Join(managed, "managed-settings.json"), false},
		{filepath.Join(dir, ".claude", "settings.local.json"), true},
		{filepath.Join(dir, ".claude", "settings.json"), true},
		{filepath.Join(home, "settings.json"), false},
	}
}

// read reads a file, which need not exist.
func (s *settings) read(path string, v any) {
	data, err := sys.ReadFile(path, maxSettings)
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
