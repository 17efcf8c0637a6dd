package copilotide

import "pollux/internal/inputline"

// InputLine finds Copilot CLI's input line. A form that asks the user indents its rules.
func InputLine(s inputline.Screen) inputline.Line { return inputline.Ruled(s, "❯") }
