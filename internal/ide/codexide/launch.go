package codexide

import "slices"

// Command is the name of Codex CLI's command.
const Command = "codex"

// Hint returns what to tell the user of Codex CLI, given its arguments.
func Hint(args []string) string {
	if slices.ContainsFunc(args, func(arg string) bool { return arg == "exec" || arg == "e" }) {
		return "" // it has no prompt to type into
	}
	return "type /ide in Codex once it has started: it then receives your open files and the selection with each prompt; " +
		"it asks about changes only in its own terminal"
}
