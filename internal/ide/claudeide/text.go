package claudeide

import (
	"strings"

	"pollux/internal/companion"
)

const bom = "\uFEFF"

// textRules are Claude Code's rules for the text of a file. Its proposals have LF line
// endings, even for a file with CRLF. It writes CRLF if the model edited a part of the
// file, but not if the model wrote all of it; a proposal does not say which. A byte
// order mark stays: the agent restores it.
type textRules struct{ companion.LFRules }

// Refuses implements [companion.TextRules]. The agent takes an accept of the text that
// the file has for a rejection.
func (textRules) Refuses(text, original, proposed string) string {
	if text != original || text == proposed {
		return ""
	}
	return "The text is the same as in the file. Claude Code takes that for a rejection: reject the change instead."
}

// Answer implements [companion.TextRules]. The agent would write a file that has CRLF
// with LF, if the model wrote all of it. It compares the text with its proposal, so
// an unchanged one stays as it is.
func (textRules) Answer(text, original, proposed string) string {
	if text == proposed {
		return text
	}
	text = companion.RestoreCRLF(text, original)
	if strings.HasPrefix(proposed, bom) && !strings.HasPrefix(text, bom) {
		text = bom + text
	}
	return text
}

// Written implements [companion.TextRules].
func (textRules) Written(answer, onDisk string) string {
	answer = companion.RestoreCRLF(answer, onDisk)
	if strings.HasPrefix(onDisk, bom) && !strings.HasPrefix(answer, bom) {
		answer = bom + answer
	}
	return answer
}

// Unwritten implements [companion.TextRules].
func (textRules) Unwritten() string {
	return "Claude Code writes nothing if the file has changed on disk since it read it, " +
		"and releases before 2.1.329 drop the last line feed of a file that the model writes as a whole"
}
