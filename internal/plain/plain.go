// Package plain makes what others wrote fit for a terminal: to be shown, and to be
// typed into a shell.
package plain

import (
	"strings"
	"unicode"
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

// Word is a text as one word of a POSIX shell's.
func Word(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
