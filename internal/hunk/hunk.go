// Package hunk finds what differs between two texts, line by line, for
// whatever shows a diff: a plugin that asks for it over the adapter protocol,
// or the terminal review. It is here once, so that a hunk is the same
// everywhere.
package hunk

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// A Hunk is one run of lines in which two texts, old and new, differ. Lines
// count from 1. One of the two counts may be 0: then the lines would stand
// before the line that is named.
type Hunk struct {
	Old, OldLines int
	New, NewLines int
}

// Between returns the hunks that make the one text the other, in order. A
// last line that ends in a line feed differs from one that does not.
func Between(old, new string) []Hunk {
	var hunks []Hunk
	oldLine, newLine, done := 1, 1, 0
	for _, e := range udiff.Lines(old, new) {
		same := lines(old[done:e.Start])
		oldLine, newLine = oldLine+same, newLine+same
		h := Hunk{Old: oldLine, OldLines: lines(old[e.Start:e.End]), New: newLine, NewLines: lines(e.New)}
		oldLine, newLine, done = oldLine+h.OldLines, newLine+h.NewLines, e.End
		if n := len(hunks); n > 0 && same == 0 {
			hunks[n-1].OldLines += h.OldLines
			hunks[n-1].NewLines += h.NewLines
			continue
		}
		hunks = append(hunks, h)
	}
	return hunks
}

// At returns the hunk that a cursor in a line of the new text is at, and
// whether there is one. Where lines are only missing, the lines on both sides
// of the gap are at it.
func At(hunks []Hunk, line int) (Hunk, bool) {
	for _, h := range hunks {
		if line >= h.New && line < h.New+h.NewLines {
			return h, true
		}
	}
	for _, h := range hunks {
		if h.NewLines == 0 && (line == h.New || line == h.New-1) {
			return h, true
		}
	}
	return Hunk{}, false
}

// OldText and NewText are the hunk's lines in the text that Between was given.
func (h Hunk) OldText(old string) string { return Text(old, h.Old, h.OldLines) }
func (h Hunk) NewText(new string) string { return Text(new, h.New, h.NewLines) }

// Text returns count lines of a text, with their line feeds.
func Text(text string, line, count int) string {
	from := offset(text, line)
	return text[from : from+offset(text[from:], count+1)]
}

// Replace returns the new text with the hunk as it is in the old one.
func (h Hunk) Replace(old, new string) string {
	from := offset(new, h.New)
	to := from + offset(new[from:], h.NewLines+1)
	return new[:from] + h.OldText(old) + new[to:]
}

// Split returns a text's lines without their line feeds.
func Split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// offset is where a line of the text starts; its end, if it has fewer.
func offset(text string, line int) int {
	at := 0
	for ; line > 1; line-- {
		i := strings.IndexByte(text[at:], '\n')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}

func lines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}
