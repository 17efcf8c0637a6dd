package copilotide

import (
	"slices"
	"strings"
)

// Command is the name of the agent's command.
const Command = "copilot"

// Hint tells the user of Copilot CLI, given its arguments, why a change would not reach
// the editor.
func Hint(args []string) string {
	approves := func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--allow-all-tools", "--allow-all", "--yolo"}, name)
	}
	if slices.ContainsFunc(args, approves) {
		return "with this option Copilot CLI writes each change without a review"
	}
	return ""
}
