package copilotide

import "pollux/internal/companion"

// readOnly says why the user cannot edit a proposal.
const readOnly = "Copilot CLI ignores edits: accept or reject the whole change"

// textRules are Copilot CLI's rules for the text of a file. It writes its proposals byte
// for byte: line endings, a byte order mark, and no final newline if the file has none.
// But on Windows it proposes a new file with LF and writes it with CRLF.
type textRules struct{ companion.LFRules }

// Shown implements [companion.TextRules].
func (textRules) Shown(original, _ string) string { return original }

// Refuses implements [companion.TextRules]. A view may show other line endings.
func (textRules) Refuses(text, _, proposed string) string {
	if companion.SameLines(text, proposed) {
		return ""
	}
	return "The text is not the proposal. " + readOnly + "."
}

// Answer implements [companion.TextRules].
func (textRules) Answer(_, _, proposed string) string { return proposed }

// Written implements [companion.TextRules].
func (textRules) Written(answer, _ string) string { return answer }
