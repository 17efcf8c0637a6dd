package geminiide

import "pollux/internal/companion"

// textRules are the rules of Gemini CLI and Qwen Code for the text of a file: a
// proposal usually has LF line endings, whatever the file has, and the CLI
// restores CRLF when it writes; an empty answer stands for the proposal.
type textRules struct{}

// Shown implements [companion.TextRules]. Neither LF instead of CRLF nor a
// missing byte order mark is a change: the CLI restores the line endings, and a
// model seldom writes the mark.
func (textRules) Shown(original, proposed string) string {
	return companion.ShownLF(original, proposed)
}

// Answer implements [companion.TextRules]. Editors remove the byte order mark
// that the file or the proposal has, and the CLI writes what it receives.
func (textRules) Answer(text, original, proposed string) string {
	return companion.RestoreMark(text, original, proposed)
}

// Written implements [companion.TextRules].
func (textRules) Written(answer, onDisk string) string {
	return companion.RestoreCRLF(answer, onDisk)
}

// Holds implements [companion.TextRules]. It ignores line endings, which the
// CLI chooses by its own rules.
func (textRules) Holds(onDisk, answer string) bool { return companion.SameLines(onDisk, answer) }

// Unwritten implements [companion.TextRules].
func (textRules) Unwritten() string {
	return "a Ctrl-C in the terminal cancels a change without closing it here"
}
