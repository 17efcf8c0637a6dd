package companion

import (
	"slices"
	"strings"
)

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

// ShownLF is [TextRules.Shown] for an agent whose proposals have LF line endings and may
// lack the byte order mark, whatever the file has. It removes these differences, which
// are not part of the change.
func ShownLF(original, proposed string) string {
	if eol(original) == "crlf" && !strings.Contains(proposed, "\r") {
		original = strings.ReplaceAll(original, "\r\n", "\n")
	}
	if !strings.HasPrefix(proposed, bom) {
		original = strings.TrimPrefix(original, bom)
	}
	return original
}

// RestoreCRLF returns the text with the line endings of a file, if the file has only
// CRLF and the text only LF.
func RestoreCRLF(text, file string) string {
	if eol(file) == "crlf" && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// RestoreMark adds the byte order mark, which editors remove, if one of the others has it. An
// empty text stays empty.
func RestoreMark(text string, others ...string) string {
	marked := slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(other, bom) })
	if text != "" && marked && !strings.HasPrefix(text, bom) {
		return bom + text
	}
	return text
}

// SameLines reports whether two texts differ at most in their line endings and the byte
// order mark.
func SameLines(a, b string) bool { return plainLines(a) == plainLines(b) }

func plainLines(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, bom), "\r\n", "\n")
}
