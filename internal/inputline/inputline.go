// Package inputline finds an agent's input line on the screen of its terminal. The
// packages of the agents recognize their lines; this one has the types, and the functions
// that several of them need.
package inputline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Screen is the visible content of a terminal.
type Screen struct {
	Rows    []Row // from the top
	X, Y    int   // the cursor, from 0; X is in columns
	Visible bool  // the cursor
}

// A Row is a row of a [Screen].
type Row struct {
	Text string
	// Bright is Text without what the terminal dims, such as hints about what to type. A
	// reversed character before dimmed ones is the cursor on a hint, and is missing too.
	Bright string
}

// A Line is an agent's input line. The zero value is a line that the screen does not show.
type Line struct {
	// Shown is set if the screen shows the line, and the agent takes what is typed for a
	// prompt. It is not set while the agent asks something, shows a list or a dialog, runs
	// what is typed in a shell, starts or has ended, nor for an unknown screen.
	Shown bool
	// Text is the text that the user, or Pollux, has typed; "" if the line is empty. The ends of rows
	// are line feeds, and the spaces around them are missing.
	Text string
}

// A Finder finds the input line of one agent. It is a pure function.
type Finder func(Screen) Line

// Find returns the line. A nil Finder finds none.
func (f Finder) Find(s Screen) Line {
	if f == nil {
		return Line{}
	}
	return f(s)
}

// Is reports whether the line shows exactly a text. Agents wrap lines at spaces, so
// white space does not count.
func (l Line) Is(text string) bool { return l.Shown && squeeze(l.Text) == squeeze(text) }

// folded starts what agents show in place of a long paste: "[Pasted text #1]".
const folded = "[Past"

// enough is how many bytes of a long text a line must show.
const enough = 20

// Holds reports whether the line shows a text, or a part of it: a long text is folded, or
// scrolled.
func (l Line) Holds(text string) bool {
	shown, text := squeeze(l.Text), squeeze(text)
	if before, _, ok := strings.Cut(shown, folded); ok && strings.HasPrefix(text, before) {
		return l.Shown
	}
	return l.Shown && shown != "" && len(shown) >= min(len(text), enough) && strings.Contains(text, shown)
}

// squeeze removes white space.
func squeeze(text string) string {
	return strings.Map(func(r rune) rune {
		if blank(r) {
			return -1
		}
		return r
	}, text)
}

// blank reports whether a character is white space, or the zero-width space that some
// agents show as the cursor.
func blank(r rune) bool { return unicode.IsSpace(r) || r == '\u200b' }

// A cell is a character on the screen.
type cell struct {
	r             rune
	dim, reversed bool
}

// Parse returns the rows of what `tmux capture-pane -p -e` prints.
func Parse(captured string) (rows []Row) {
	var now cell // attributes last beyond the end of a row
	for line := range strings.Lines(captured) {
		var cells []cell
		for line = strings.TrimSuffix(line, "\n"); line != ""; {
			if attributes, after, ok := cutSequence(line); ok {
				now.set(attributes)
				line = after
				continue
			}
			r, size := utf8.DecodeRuneInString(line)
			line = line[size:]
			if r >= ' ' { // others shift to another character set
				now.r = r
				cells = append(cells, now)
			}
		}
		var text, bright strings.Builder
		for i, c := range cells {
			text.WriteRune(c.r)
			if !c.dim && !(c.reversed && i+1 < len(cells) && cells[i+1].dim) {
				bright.WriteRune(c.r)
			}
		}
		rows = append(rows, Row{text.String(), bright.String()})
	}
	return rows
}

// cutSequence cuts an escape sequence at the start of a text. attributes is "-" if it is
// not one for the attributes of characters: tmux also writes links.
func cutSequence(line string) (attributes, after string, ok bool) {
	if rest, found := strings.CutPrefix(line, "\x1b["); found {
		return strings.Cut(rest, "m")
	}
	if rest, found := strings.CutPrefix(line, "\x1b]"); found {
		_, after, ok = strings.Cut(rest, "\x1b\\")
		return "-", after, ok
	}
	return "", "", false
}

// set changes the attributes of the cells that follow.
func (c *cell) set(attributes string) {
	fields := strings.FieldsFunc(attributes, func(r rune) bool { return r == ';' })
	if len(fields) == 0 {
		*c = cell{}
	}
	for i := 0; i < len(fields); i++ {
		switch fields[i] {
		case "0":
			*c = cell{}
		case "2":
			c.dim = true
		case "22":
			c.dim = false
		case "7":
			c.reversed = true
		case "27":
			c.reversed = false
		case "38", "48", "58": // a colour: 5 and its number, or 2 and its parts
			if i+1 < len(fields) && fields[i+1] == "2" {
				i += 2
			}
			i += 2
		}
	}
}

// IsRule reports whether a row is a horizontal line that begins at the left edge.
// Agents may write a title into it.
func IsRule(row Row) bool {
	text := strings.TrimRight(row.Text, " ")
	return strings.HasPrefix(text, "────") && strings.HasSuffix(text, "─")
}

// New returns the line that a screen shows in a part of a row and the rows below it.
func New(first string, more []Row) Line {
	rows := []string{strings.TrimFunc(first, blank)}
	for _, row := range more {
		rows = append(rows, strings.TrimFunc(row.Bright, blank))
	}
	return Line{Shown: true, Text: strings.TrimSpace(strings.Join(rows, "\n"))}
}

// Between returns the rows between the last two rules of the screen, and the number of
// rows above them. ok is false if there are no two rules, or if what follows the second one
// is more than a [Footer].
func (s Screen) Between() (rows []Row, above int, ok bool) {
	bottom := len(s.Rows) - 1
	for bottom >= 0 && !IsRule(s.Rows[bottom]) {
		bottom--
	}
	top := bottom - 1
	for top >= 0 && !IsRule(s.Rows[top]) {
		top--
	}
	if top < 0 {
		return nil, 0, false
	}
	return s.Rows[top+1 : bottom], top + 1, Footer(s.Rows[bottom+1:])
}

// Ruled finds an input line with the cursor that begins with a mark, between two rules.
func Ruled(s Screen, mark string) Line {
	rows, above, ok := s.Between()
	if !ok || s.Y < above || s.Y >= above+len(rows) {
		return Line{}
	}
	first, ok := strings.CutPrefix(rows[0].Bright, mark)
	if !ok {
		return Line{}
	}
	return New(first, rows[1:])
}

// Footer reports whether the rows below an input line are hints and settings, and not a
// question: there are some, indented, without a box.
func Footer(rows []Row) bool {
	full := false
	for _, row := range rows {
		text := strings.TrimSpace(row.Text)
		if text == "" {
			continue
		}
		full = true
		if row.Text[0] != ' ' || strings.ContainsRune("│╭╰┃", []rune(text)[0]) {
			return false
		}
	}
	return full
}
