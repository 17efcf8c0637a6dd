package companion

import "strings"

const bom = "\uFEFF"

// eol returns how a text ends its lines: lf, crlf, mixed, or "" for a text of one
// line.
func eol(text string) string {
	lf := strings.Count(text, "\n")
	switch crlf := strings.Count(text, "\r\n"); {
	case lf == 0:
		return ""
	case crlf == 0:
		return "lf"
	case crlf == lf:
		return "crlf"
	}
	return "mixed"
}

// LFRules are the [TextRules] of an agent whose proposals usually have LF line endings and no
// byte order mark, even if the file has others. The agent restores CRLF when it writes, and writes the
// mark if it receives it.
type LFRules struct{}

// Shown implements [TextRules].
func (LFRules) Shown(original, proposed string) string {
	if eol(original) == "crlf" && !strings.Contains(proposed, "\r") {
		original = strings.ReplaceAll(original, "\r\n", "\n")
	}
	if !strings.HasPrefix(proposed, bom) {
		original = strings.TrimPrefix(original, bom)
	}
	return original
}

// Refuses implements [TextRules].
func (LFRules) Refuses(_, _, _ string) string { return "" }

// Answer implements [TextRules]. It adds the byte order mark, which editors remove, if the file or
// the proposal has it. An empty text stays empty.
func (LFRules) Answer(text, original, proposed string) string {
	marked := strings.HasPrefix(original, bom) || strings.HasPrefix(proposed, bom)
	if text != "" && marked && !strings.HasPrefix(text, bom) {
		return bom + text
	}
	return text
}

// Written implements [TextRules].
func (LFRules) Written(answer, onDisk string) string { return RestoreCRLF(answer, onDisk) }

// Holds implements [TextRules]. It ignores line endings and the byte order mark, which the agent
// chooses by its own rules.
func (LFRules) Holds(onDisk, text string) bool { return SameLines(onDisk, text) }

// Unwritten implements [TextRules].
func (LFRules) Unwritten() string { return "" }

// RestoreCRLF returns the text with the line endings of a file, if the file has only
// CRLF and the text only LF.
func RestoreCRLF(text, file string) string {
	if eol(file) == "crlf" && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// SameLines reports whether two texts differ at most in their line endings and the byte
// order mark.
func SameLines(a, b string) bool { return plainLines(a) == plainLines(b) }

func plainLines(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, bom), "\r\n", "\n")
}
