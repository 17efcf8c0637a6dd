// Package termtext makes untrusted text safe for a terminal.
//
// One table, [classOf], decides what a terminal may receive. The functions
// differ in what they do with the rest: [Line] and [Text] drop it, [Visible]
// replaces it, [JSON] escapes it, [Paste] replaces controls with spaces.
package termtext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// A class says what a rune does in a terminal.
type class int

const (
	shown   class = iota // a visible character, a combining mark or a space
	control              // a C0 or C1 control character
	hidden               // invisible, or changes the order of what is shown
)

const (
	joiner            = '\u200d' // joins emoji
	nonJoiner         = '\u200c' // part of the spelling in Persian and other languages
	textPresentation  = '\ufe0e'
	emojiPresentation = '\ufe0f'
)

// classOf returns the class of a rune. Hidden are format characters such as the
// bidirectional controls, zero-width spaces and tags, line and paragraph
// separators, and marks and letters without a glyph, which can carry invisible
// text. The joiner of emoji is shown, and so are private characters (icons of
// fonts) and unassigned ones (new emoji).
func classOf(r rune) class {
	switch {
	case r >= ' ' && r < 0x7f, r == joiner, r == textPresentation, r == emojiPresentation:
		return shown
	case unicode.IsControl(r):
		return control
	case unicode.In(r, unicode.Cf, unicode.Cs, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return hidden
	}
	return shown
}

// Line returns s in one line. Line endings and tabs become spaces; other control
// and hidden characters are dropped. A text longer than limit bytes is cut and
// ends in "..."; a limit of 0 means none.
func Line(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case classOf(r) != shown:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if limit > 0 && len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

// Text returns s with its lines, tabs and zero-width non-joiners, without other
// control characters and hidden ones.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == nonJoiner || classOf(r) == shown {
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "?"))
}

// tabWidth is the distance of the tab stops of [Visible].
const tabWidth = 4

// Visible returns a line with control and hidden characters replaced by a
// visible sign, and so are spaces other than the plain one. Tabs become spaces
// up to the next tab stop.
func Visible(line string) string {
	var b strings.Builder
	column := 0
	for _, r := range line {
		switch {
		case r == '\t':
			n := tabWidth - column%tabWidth
			b.WriteString(strings.Repeat(" ", n))
			column += n
			continue
		case r == '\r':
			b.WriteRune('␍')
		case r < ' ':
			b.WriteRune('␀' + r)
		case r == 0x7f:
			b.WriteRune('␡')
		case classOf(r) != shown, r != ' ' && unicode.IsSpace(r):
			b.WriteRune('·')
		default:
			b.WriteRune(r)
		}
		column++
	}
	return b.String()
}

// Paste returns text that can be pasted into a program in a terminal. Control
// characters other than line feeds become spaces, so that none ends the paste.
// Everything else stays: the text may hold names of files.
func Paste(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && classOf(r) == control {
			return ' '
		}
		return r
	}, text)
}

// JSON returns the same JSON with control and hidden characters escaped.
func JSON(data []byte) []byte {
	var out []byte
	for _, r := range string(data) {
		switch {
		case r == '\n', r == '\t', classOf(r) == shown:
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

// Count returns a number with its noun, such as "1 file" or "2 files".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
