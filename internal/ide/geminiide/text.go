package geminiide

import "pollux/internal/companion"

// textRules are the rules of Gemini CLI and Qwen Code for the text of a file. An empty answer
// stands for the proposal: see [Session.Refuses].
type textRules struct{ companion.LFRules }

// Unwritten implements [companion.TextRules].
func (textRules) Unwritten() string {
	return "a Ctrl-C in the terminal cancels a change without closing it here"
}
