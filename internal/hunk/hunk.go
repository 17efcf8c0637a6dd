// Package hunk compares two texts line by line. Everything that shows a diff
// uses it, so that a hunk is the same everywhere.
package hunk

import "strings"

// A Hunk is a range of lines where two texts, old and new, differ. Lines count from
// 1. If one of the counts is 0, the other text's lines belong before that
// line.
type Hunk struct {
	Old, OldLines int
	New, NewLines int
}

// Between returns the hunks between two texts, in order. A last line with a line
// feed differs from one without.
func Between(oldText, newText string) []Hunk {
	numbers := make(map[string]int)
	number := func(text string) (all []int) {
		for line := range strings.Lines(text) {
			if _, known := numbers[line]; !known {
				numbers[line] = len(numbers)
			}
			all = append(all, numbers[line])
		}
		return all
	}
	oldLines, newLines := number(oldText), number(newText)
	var hunks []Hunk
	oldLine, newLine := 0, 0
	add := func(o, n int) {
		if oldLine < o || newLine < n {
			hunks = append(hunks, Hunk{Old: oldLine + 1, OldLines: o - oldLine, New: newLine + 1, NewLines: n - newLine})
		}
		oldLine, newLine = o+1, n+1
	}
	for o, n := range match(oldLines, newLines) {
		if n >= 0 {
			add(o, n)
		}
	}
	add(len(oldLines), len(newLines))
	return hunks
}

// At returns the hunk that contains a line of the new text, if there is one. A
// hunk without new lines contains the lines before and after it.
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

// OldText returns the hunk's lines in the old text.
func (h Hunk) OldText(oldText string) string { return Text(oldText, h.Old, h.OldLines) }

// Text returns count lines of a text, with their line feeds.
func Text(text string, line, count int) string {
	from := offset(text, line)
	return text[from : from+offset(text[from:], count+1)]
}

// Replace returns the new text with the lines of the hunk from the old one.
func (h Hunk) Replace(oldText, newText string) string {
	from := offset(newText, h.New)
	to := from + offset(newText[from:], h.NewLines+1)
	return newText[:from] + h.OldText(oldText) + newText[to:]
}

// Split returns the lines of a text without their line feeds.
func Split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// offset returns where a line of the text starts, or the text's end if it has
// fewer lines.
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
