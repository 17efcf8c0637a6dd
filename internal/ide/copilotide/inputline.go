package copilotide

import "pollux/internal/inputline"

// InputLine finds Copilot CLI's input line. A question to the user has indented rules.
func InputLine(s inputline.Screen) inputline.Line { return inputline.Ruled(s, "❯") }
