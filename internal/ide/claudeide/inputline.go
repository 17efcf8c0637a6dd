package claudeide

import "pollux/internal/inputline"

// ClaudeInputLine finds Claude Code's input line.
func ClaudeInputLine(s inputline.Screen) inputline.Line { return inputline.Ruled(s, "❯") }
