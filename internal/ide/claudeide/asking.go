package claudeide

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"runtime"
	"slices"

	"pollux/internal/ide/asking"
)

// manualMode is how a running Claude Code is made to ask.
const manualMode = `press Shift+Tab in Claude Code until it says "manual mode"`

// ClaudeAsking returns whether Claude Code asks before it changes a file. In "auto", its
// own default, it does not.
func ClaudeAsking(s asking.Start) asking.Mode {
	manual := []string{"--permission-mode", "default"}
	mode, from := "bypassPermissions", "--dangerously-skip-permissions"
	if _, skips := s.Flag(from); !skips {
		mode, from, _ = PermissionMode(s)
	}
	if flag, set := s.Flag("--permission-mode"); set {
		mode, from = flag, "--permission-mode"
	}
	if _, prints := s.Flag("--print", "-p"); prints {
		return asking.Mode{} // it connects to no companion
	}
	switch mode {
	case "":
		return asking.Mode{Args: manual, Silent: "auto mode (Claude Code's default)", Ask: manualMode}
	case "auto", "acceptEdits", "bypassPermissions":
		m := asking.Mode{Silent: mode + " mode (" + from + ")", Ask: manualMode}
		if s.FromProject(from) {
			m.Args = manual
		}
		return m
	}
	return asking.Mode{}
}

// PermissionMode returns the permission mode in which Claude Code starts by its settings,
// and the file that says so. Both are empty if no effective setting chooses one. errs has
// a problem for each file that cannot be read.
func PermissionMode(s asking.Start) (mode, from string, errs []error) {
	home := s.Home("CLAUDE_CONFIG_DIR", ".claude")
	for _, layer := range layers(home, s.Dir) {
		var file struct {
			Permissions struct{ DefaultMode string }
		}
		if err := asking.Read(layer.path, &file); err != nil {
			errs = append(errs, err)
		}
		if set := file.Permissions.DefaultMode; set != "" && from == "" {
			mode, from = layer.allow(set), layer.path
		}
	}
	return mode, from, errs
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
	managed := cmp.Or(map[string]string{
		"darwin": "/Library/Application Support/ClaudeCode", "windows": `C:\Program Files\ClaudeCode`,
	}[runtime.GOOS], "/etc/claude-code")
	return []layer{
		{filepath.Join(managed, "managed-settings.json"), false},
		{filepath.Join(dir, ".claude", "settings.local.json"), true},
		{filepath.Join(dir, ".claude", "settings.json"), true},
		{filepath.Join(home, "settings.json"), false},
	}
}

// askPermission makes opencode ask before it changes a file, and before it runs a command,
// which may change one.
const askPermission = `{"edit":"ask","bash":"ask"}`

// envPermission has permissions as JSON, which opencode adds to its settings.
const envPermission = "OPENCODE_PERMISSION"

// OpencodeAsking returns whether opencode asks before it changes a file. Unless its
// settings say so, it does not.
func OpencodeAsking(s asking.Start) asking.Mode {
	if s.Command("run", "serve", "web", "acp") {
		return asking.Mode{} // it has no terminal to ask in
	}
	const ask = `set "permission": {"edit": "ask", "bash": "ask"} in `
	home := filepath.Join(s.Home("XDG_CONFIG_HOME", ".config"), "opencode")
	own := filepath.Join(home, "opencode.json")
	// The strongest first.
	var texts []source
	if text := s.Getenv(envPermission); text != "" {
		texts = append(texts, source{envPermission, json.RawMessage(text)})
	}
	var inline struct{ Permission json.RawMessage }
	if json.Unmarshal([]byte(s.Getenv("OPENCODE_CONFIG_CONTENT")), &inline) == nil {
		texts = append(texts, source{"OPENCODE_CONFIG_CONTENT", inline.Permission})
	}
	files := []string{s.Getenv("OPENCODE_CONFIG")}
	for _, dir := range []string{filepath.Join(s.Dir, ".opencode"), s.Dir, s.Root(), home} {
		files = append(files, filepath.Join(dir, "opencode.jsonc"), filepath.Join(dir, "opencode.json"))
	}
	for _, path := range append(files, filepath.Join(home, "config.json")) {
		var file struct{ Permission json.RawMessage }
		if path != "" && asking.Read(path, &file) == nil {
			texts = append(texts, source{path, file.Permission})
		}
	}
	texts = slices.DeleteFunc(texts, func(t source) bool { return len(t.permission) == 0 })
	made := []string{envPermission + "=" + askPermission}
	if len(texts) == 0 {
		return asking.Mode{Env: made, Silent: "its settings (opencode's default)", Ask: ask + own}
	}
	for _, t := range texts {
		if asks, set := t.asks(); set {
			if asks {
				return asking.Mode{}
			}
			m := asking.Mode{Silent: "its settings (" + t.from + ")", Ask: ask + own}
			if s.FromProject(t.from) {
				m.Env = made
			}
			return m
		}
	}
	return asking.Mode{Silent: "its settings (" + texts[0].from + ")", Ask: ask + own}
}

// A source is opencode's permissions from one place.
type source struct {
	from       string
	permission json.RawMessage
}

// asks returns whether opencode asks before it edits a file, or edits none, and whether the
// source says anything about that. A permission is a word, or an object of words or of
// objects with patterns; a pattern that allows any file counts.
func (s source) asks() (asks, set bool) {
	var word string
	if json.Unmarshal(s.permission, &word) == nil {
		return word != "allow", word != ""
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(s.permission, &all) != nil {
		return false, false
	}
	edit := all["edit"]
	if edit == nil {
		edit = all["*"]
	}
	if edit == nil {
		return false, false
	}
	if json.Unmarshal(edit, &word) == nil {
		return word != "allow", true
	}
	var patterns map[string]string
	if json.Unmarshal(edit, &patterns) != nil {
		return false, true
	}
	for _, word := range patterns {
		if word == "allow" {
			return false, true
		}
	}
	return len(patterns) > 0, true
}
