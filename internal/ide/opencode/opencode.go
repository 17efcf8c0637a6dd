// Package opencode has what Pollux knows of opencode besides its protocol, which is Claude Code's:
// how it starts, whether it asks, and what it shows on its screen.
package opencode

import (
	"pollux/internal/companion"
	"pollux/internal/editor"
)

// Command is the name of opencode's command.
const Command = "opencode"

// Hint tells the user of opencode what it does not do.
func Hint([]string) string {
	return "opencode receives the open file and the selection; it asks about changes only in its own terminal"
}

// ready is on the screen when opencode reads its keyboard, before the first question only.
const ready = "Ask anything"

// Prompt returns what to type into opencode's terminal to ask about a file.
func Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	return companion.NewPrompt(p, companion.AtText(p, roots), ready)
}
