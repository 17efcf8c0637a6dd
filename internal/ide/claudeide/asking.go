package claudeide

import (
	"cmp"
	"path/filepath"
	"runtime"

	"pollux/internal/ide/asking"
)

// ClaudeManual is how a running Claude Code is made to ask.
const ClaudeManual = `press Shift+Tab in Claude Code until it says "manual mode"`

var claudeChoice = asking.Choice{
	Flag: "--permission-mode", Skip: "bypassPermissions", SkipFlags: []string{"--dangerously-skip-permissions"},
	Silent: silentModes, Default: "auto mode (Claude Code's default)",
	Ask: ClaudeManual,
}

// ClaudeAsking returns whether Claude Code asks before it changes a file. In "auto", its
// own default, it does not.
func ClaudeAsking(s asking.Start) asking.Mode {
	if _, prints := s.Flag("--print", "-p"); prints {
		return asking.Mode{} // it connects to no companion
	}
	settings := Settings(s)
	m := claudeChoice.Mode(s, settings)
	var more asking.Mode
	switch own, set := s.Flag("--settings"); {
	case !set:
		more.Args = []string{"--settings", askRules}
	case own == askRules:
		return m
	}
	return s.Overrule(m, allowing(s, settings), more)
}

// silentModes are the modes in which Claude Code, or a subagent, changes files without asking.
var silentModes = []string{"auto", "acceptEdits", "bypassPermissions"}

// editTools are the tools with which Claude Code changes files. askRules, as settings, make
// it ask for each of them, also if a rule allows one.
var editTools = []string{"Edit", "Write", "NotebookEdit"}

const askRules = `{"permissions":{"ask":["Edit","Write","NotebookEdit"]}}`

// allowing returns the rules that let Claude Code change files in its manual mode.
func allowing(s asking.Start, settings []asking.Settings) (rules []asking.Rule) {
	for _, flag := range []string{"--allowedTools", "--allowed-tools"} {
		rules = append(rules, s.AllowedByFlag(flag, editTools...)...)
	}
	rules = append(rules, s.AllowedBySettings(settings, editTools...)...)
	for _, dir := range s.Dirs() {
		for _, kind := range []string{"commands", "skills"} {
			rules = append(rules, s.AllowedByHeaders(filepath.Join(dir, ".claude", kind), []string{"allowed-tools"}, editTools...)...)
		}
		rules = append(rules, s.AllowedByHeaders(filepath.Join(dir, ".claude", "agents"), []string{"permissionMode"}, silentModes...)...)
	}
	return rules
}

// Settings returns what Claude Code's files of settings say, the strongest first, with the modes
// in which Claude Code starts. The project's files may not turn off the questions: with "auto" in one,
// Claude Code starts as if no file chose a mode, and with "bypassPermissions" in its manual mode.
func Settings(s asking.Start) []asking.Settings {
	managed := cmp.Or(map[string]string{
		"darwin": "/Library/Application Support/ClaudeCode", "windows": `C:\Program Files\ClaudeCode`,
	}[runtime.GOOS], "/etc/claude-code")
	type file struct {
		Permissions struct {
			DefaultMode string
			Allow       []string
		}
	}
	all := asking.ReadSettings(func(f file) (string, []string) { return f.Permissions.DefaultMode, f.Permissions.Allow },
		filepath.Join(managed, "managed-settings.json"),
		filepath.Join(s.Dir, ".claude", "settings.local.json"),
		filepath.Join(s.Dir, ".claude", "settings.json"),
		filepath.Join(s.Home("CLAUDE_CONFIG_DIR", ".claude"), "settings.json"))
	local, project, user := &all[1], &all[2], &all[3]
	switch cmp.Or(local.Mode, project.Mode) {
	case "auto":
		local.Mode, project.Mode, user.Mode = "", "", ""
	case "bypassPermissions":
		local.Mode = "default"
	}
	return all
}
