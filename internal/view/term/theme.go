package term

import (
	"context"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"pollux/internal/hunk"
	"pollux/internal/termtext"
	"pollux/internal/view/term/syntax"
)

// A theme is the colours of changed lines.
//
// The zero theme is for every terminal: changed lines are red and green, and the words
// that differ are reversed, which terminals without colours show too. If the terminal
// reports its background and has enough colours, changed lines have a coloured
// background. Then the colours of the language fit on them.
type theme struct {
	removed, added, yours             string
	removedWord, addedWord, yoursWord string
}

// Backgrounds as in delta, for dark and for light terminals.
var (
	darkTheme = theme{
		removed: "\x1b[48;2;63;0;1m", removedWord: "\x1b[48;2;144;16;17m",
		added: "\x1b[48;2;0;40;0m", addedWord: "\x1b[48;2;0;96;0m",
		yours: "\x1b[48;2;0;30;72m", yoursWord: "\x1b[48;2;0;66;150m",
	}
	lightTheme = theme{
		removed: "\x1b[48;2;255;224;224m", removedWord: "\x1b[48;2;255;192;192m",
		added: "\x1b[48;2;208;255;208m", addedWord: "\x1b[48;2;160;239;160m",
		yours: "\x1b[48;2;214;230;255m", yoursWord: "\x1b[48;2;172;203;255m",
	}
)

// background returns the theme for a terminal's background.
func background(c tea.BackgroundColorMsg) theme {
	if c.IsDark() {
		return darkTheme
	}
	return lightTheme
}

// askBackground asks the terminal for its background if it can show a coloured one.
func askBackground(c tea.ColorProfileMsg) tea.Cmd {
	if c.Profile < colorprofile.ANSI256 {
		return nil
	}
	return tea.RequestBackgroundColor
}

// classColours are the terminal's own colours for the parts of a language. They leave out
// red and green, which mean removed and added.
var classColours = map[syntax.Class]string{
	syntax.Keyword: "\x1b[35m", syntax.String: "\x1b[36m", syntax.Number: "\x1b[33m", syntax.Comment: faint,
}

// styles returns the style of a row, the style of its words that differ, and whether it has the
// colours of the language.
func (t theme) styles(r *row) (line, word string, language bool) {
	switch {
	case r.kind == same:
		return "", "", true
	case t == theme{} || r.kind == undone:
		return r.sign().colour, reverse, false
	case r.kind == removed:
		return t.removed, t.removedWord, true
	case r.yours:
		return t.yours, t.yoursWord, true
	}
	return t.added, t.addedWord, true
}

// paint returns a part of a row's text in its colours.
func (t theme) paint(r *row, from, to int) string {
	line, word, language := t.styles(r)
	var colours []syntax.Span
	if language {
		colours = r.colours
	}
	var b strings.Builder
	for from < to {
		mark, end := within(r.marks, from, to)
		part, end := within(colours, from, end)
		style := line
		if mark != nil {
			style = line + word
		}
		if part != nil {
			style += classColours[part.Class]
		}
		b.WriteString(style + r.shown[from:end])
		if style != "" {
			b.WriteString(plain)
		}
		from = end
	}
	return b.String()
}

// pad fills a part of a row's text with its background.
func (t theme) pad(r *row, text string, width int) string {
	rest := pad("", width-ansi.StringWidth(text))
	if line, _, language := t.styles(r); language && line != "" {
		rest = line + rest + plain
	}
	return text + rest
}

// within returns the span that contains from, or nil, and how far that goes.
func within(spans []syntax.Span, from, to int) (*syntax.Span, int) {
	i, _ := slices.BinarySearchFunc(spans, from, func(s syntax.Span, at int) int { return s.To - at - 1 })
	switch {
	case i == len(spans):
		return nil, to
	case spans[i].From > from:
		return nil, min(to, spans[i].From)
	}
	return &spans[i], min(to, spans[i].To)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}

// colours holds the colours of each line of the texts of a diff, by text.
type colours map[string][][]syntax.Span

// lit is a diff with the colours of its texts.
type lit struct {
	id string
	colours
}

// light finds the colours of the diff in view, in the background.
func (m *model) light() tea.Cmd {
	it := m.item()
	if it == nil || it.lighting {
		return nil
	}
	texts := []string{it.Original, it.text}
	_, original := it.colours[it.Original]
	if _, text := it.colours[it.text]; original && text {
		return nil
	}
	it.lighting = true
	ctx, id, path, known := m.ctx, it.ID, it.Path, it.colours
	return func() tea.Msg {
		found := make(colours, len(texts))
		for _, text := range texts {
			lines, ok := known[text]
			if !ok {
				lines = linesOf(ctx, path, text)
			}
			found[text] = lines
		}
		return lit{id, found}
	}
}

// linesOf returns the colours of a text as the terminal shows it.
func linesOf(ctx context.Context, path, text string) [][]syntax.Span {
	if len(text) > syntax.MaxText {
		return nil
	}
	lines := hunk.Split(text)
	for i, l := range lines {
		lines[i] = termtext.Visible(strings.TrimSuffix(l, "\r"))
	}
	return syntax.Lines(ctx, path, strings.Join(lines, "\n"))
}

// colour gives the rows the colours that are known.
func (it *item) colour() {
	original, text := it.colours[it.Original], it.colours[it.text]
	for i := range it.rows {
		r := &it.rows[i]
		switch {
		case r.kind == removed && r.old <= len(original):
			r.colours = original[r.old-1]
		case (r.kind == same || r.kind == added) && r.new <= len(text):
			r.colours = text[r.new-1]
		}
	}
}
