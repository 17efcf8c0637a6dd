// Package termtext makes what others wrote fit for a terminal: to be shown, and to be
// typed into a shell.
package termtext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line is a text in one line: without control characters, without what turns the
// direction of writing, and cut after max bytes.
func Line(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsGraphic(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if len(s) > max {
		s = strings.ToValidUTF8(s[:max], "") + "..."
	}
	return s
}

// Text returns a text of several lines without what would steer a terminal:
// control characters, other than line feeds and tabs, and what turns the
// direction of writing.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// JSON returns the same JSON with everything escaped that is not to be seen, so
// that it can be shown in a terminal.
func JSON(data []byte) []byte {
	var out []byte
	for _, r := range string(data) {
		switch {
		case r == '\n', r == '\t', unicode.IsGraphic(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Word is a text as one word of a POSIX shell's.
func Word(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
