package claudeide

import (
	"pollux/internal/companion"
	"pollux/internal/editor"
)

// ready is on the screen when Claude Code reads its keyboard, in every permission mode, and only
// while its input line is empty.
const ready = "\u2190 for agents"

// ClaudePrompt returns what to type into Claude Code's terminal to ask about a file.
func ClaudePrompt(p editor.PromptParams, roots []string) editor.Prompt {
	return companion.NewPrompt(p, companion.AtText(p, roots), ready)
}
