package claudeide

import (
	"cmp"
	"path/filepath"
	"runtime"

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
	var m asking.Mode
	switch mode {
	case "":
		m = asking.Mode{Args: manual, Silent: "auto mode (Claude Code's default)", Ask: manualMode}
	case "auto", "acceptEdits", "bypassPermissions":
		m = asking.Mode{Silent: mode + " mode (" + from + ")", Ask: manualMode}
		if s.FromProject(from) {
			m.Args = manual
		}
	}
	var more asking.Mode
	switch own, set := s.Flag("--settings"); {
	case !set:
		more.Args = []string{"--settings", askRules}
	case own == askRules:
		return m
	}
	return s.Overrule(m, allowing(s), more)
}

// editTools are the tools with which Claude Code changes files. askRules, as settings, make
// it ask for each of them, also if a rule allows one.
var editTools = []string{"Edit", "Write", "NotebookEdit"}

const askRules = `{"permissions":{"ask":["Edit","Write","NotebookEdit"]}}`

// allowing returns the rules that let Claude Code change files in its manual mode.
func allowing(s asking.Start) (rules []asking.Rule) {
	for _, flag := range []string{"--allowedTools", "--allowed-tools"} {
		rules = append(rules, s.AllowedByFlag(flag, editTools...)...)
	}
	for _, layer := range layers(s.Home("CLAUDE_CONFIG_DIR", ".claude"), s.Dir) {
		var file struct {
			Permissions struct{ Allow []string }
		}
		if asking.Read(layer.path, &file) == nil {
			rules = append(rules, s.Allowed(file.Permissions.Allow, layer.path, editTools...)...)
		}
	}
	for _, dir := range s.Dirs() {
		for _, kind := range []string{"commands", "skills"} {
			rules = append(rules, s.AllowedByHeaders(filepath.Join(dir, ".claude", kind), []string{"allowed-tools"}, editTools...)...)
		}
	}
	return rules
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
