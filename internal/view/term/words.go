package term

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"pollux/internal/hunk"
	"pollux/internal/view/term/syntax"
)

// maxWords limits how many words of one hunk are compared.
const maxWords = 20_000

// A word is a run of letters and digits, a run of spaces, or one other character.
type word struct {
	row *row
	syntax.Span
}

// markWords marks what differs inside the changed lines of each hunk.
func markWords(rows []row) {
	for i := 0; i < len(rows); {
		first := i
		for i < len(rows) && rows[i].hunk == rows[first].hunk {
			i++
		}
		if rows[first].hunk >= 0 {
			markHunk(rows[first:i])
		}
	}
}

func markHunk(rows []row) {
	var sides [2]struct {
		words []word
		lines strings.Builder // one line for each word, and an empty one for each line's end
	}
	for i := range rows {
		r := &rows[i]
		if r.kind != removed && r.kind != added {
			continue
		}
		side := &sides[0]
		if r.kind == added {
			side = &sides[1]
		}
		for _, s := range split(r.shown) {
			side.words = append(side.words, word{r, s})
			side.lines.WriteString(r.shown[s.From:s.To] + "\n")
		}
		side.words = append(side.words, word{r, syntax.Span{From: len(r.shown), To: len(r.shown)}})
		side.lines.WriteString("\n")
		if len(side.words) > maxWords {
			return
		}
	}
	if len(sides[0].words) == 0 || len(sides[1].words) == 0 {
		return
	}
	mark := func(words []word) {
		for _, w := range words {
			w.row.marks = append(w.row.marks, w.Span)
		}
	}
	for _, h := range hunk.Between(sides[0].lines.String(), sides[1].lines.String()) {
		mark(sides[0].words[h.Old-1:][:h.OldLines])
		mark(sides[1].words[h.New-1:][:h.NewLines])
	}
	for i := range rows {
		rows[i].marks = tidy(rows[i].shown, rows[i].marks)
	}
}

// split returns the words of a line.
func split(line string) (words []syntax.Span) {
	class := func(r rune) int {
		switch {
		case unicode.IsSpace(r):
			return 1
		case r == '_', unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r):
			return 2
		}
		return 0
	}
	last := 0
	for i, r := range line {
		c := class(r)
		if n := len(words); n > 0 && c != 0 && c == last {
			words[n-1].To = i + utf8.RuneLen(r)
		} else {
			words = append(words, syntax.Span{From: i, To: i + utf8.RuneLen(r)})
		}
		last = c
	}
	return words
}

// tidy joins marks with only spaces between them. It returns none if the marks are most
// of the line: such a line is another one, not a changed one.
func tidy(line string, marks []syntax.Span) (joined []syntax.Span) {
	marked := 0
	for _, m := range marks {
		if m.From == m.To {
			continue
		}
		marked += visible(line[m.From:m.To])
		if n := len(joined); n > 0 && visible(line[joined[n-1].To:m.From]) == 0 {
			joined[n-1].To = m.To
		} else {
			joined = append(joined, m)
		}
	}
	if all := visible(line); marked*4 > all*3 {
		return nil
	}
	return joined
}

// visible returns how many characters of a text are not spaces.
func visible(text string) (n int) {
	for _, r := range text {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n
}
