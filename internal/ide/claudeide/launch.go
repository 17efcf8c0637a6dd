package claudeide

import (
	"slices"
	"strings"
)

// The names of the commands.
const (
	ClaudeCommand   = "claude"
	OpencodeCommand = "opencode"
)

// LaunchUnset are variables of another companion, or of another IDE, that must not
// reach an agent that Pollux starts. opencode cannot connect if it has one of them,
// whatever its value is.
var LaunchUnset = []string{EnvPort, EnvOpencodePort}

// ClaudeEnv returns the variables that lead Claude Code to the companion that has
// set the variables in the map. They do so whatever folders the locks name, so also
// if another program has the same folder.
func ClaudeEnv(companion map[string]string) []string {
	env := []string{EnvAutoConnect + "=true"}
	if port := companion[envServerPort]; port != "" {
		env = append(env, EnvPort+"="+port)
	}
	return env
}

// ClaudeHint returns what to tell the user of Claude Code, given its arguments. In
// "auto", its default permission mode, the changes do not reach the editor.
func ClaudeHint(args []string) string {
	if slices.ContainsFunc(args, choosesMode) {
		return ""
	}
	return "to review each change, press Shift+Tab in Claude Code until it says \"manual mode\" " +
		"(--permission-mode default starts it in that mode)"
}

// choosesMode reports whether an argument of Claude Code selects a permission mode, or
// that it prints an answer and connects to nothing.
func choosesMode(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return slices.Contains([]string{"--permission-mode", "--dangerously-skip-permissions", "--print", "-p"}, name)
}

// OpencodeHint tells the user of opencode what it does not do.
func OpencodeHint([]string) string {
	return "opencode receives the open file and the selection; it asks about changes only in its own terminal"
}
