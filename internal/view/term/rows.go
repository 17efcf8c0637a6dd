package term

import (
	"cmp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"pollux/internal/hunk"
	"pollux/internal/termtext"
	"pollux/internal/view/term/syntax"
)

// A kind is the kind of a row.
type kind int

const (
	same    kind = iota // in both texts
	removed             // only on disk
	added               // only in the new text
	undone              // proposed, but undone by the user
	fold                // lines left out
)

// A row is one line of a unified view.
type row struct {
	kind kind
	text string
	// yours is set if the user has changed an added line since it was proposed.
	yours bool
	// shown is the text as the terminal shows it, and marks are its differences from
	// the lines that it replaces or that replace it.
	shown string
	marks []syntax.Span
	// colours are the parts of the language in the shown text.
	colours []syntax.Span
	// old and new are the line's numbers; 0 for none.
	old, new int
	// hunk is the index of the hunk that the row belongs to; -1 for none.
	hunk int
	// count is how many lines a fold leaves out.
	count int
	// from is the column in which the line first differs from the one it replaces or
	// is replaced by; 0 without such a line.
	from int
}

// A change is one hunk of a view.
type change struct {
	hunk.Hunk
	undone bool
}

// around is how many lines are shown before and after a change.
const around = 4

// layOut returns the rows and changes of a text, compared with the original on disk
// and the proposal.
func layOut(original, proposed, text string) (rows []row, changes []change) {
	now := hunk.Between(original, text)
	for _, h := range now {
		changes = append(changes, change{Hunk: h})
	}
	// Hunks of the proposal where the text is as on disk: the user has undone them.
	edits := hunk.Between(proposed, text)
	for _, h := range edits {
		if !touches(now, h) {
			changes = append(changes, change{Hunk: h, undone: true})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.New, b.New) })
	before, after := hunk.Split(original), hunk.Split(text)
	mine := hunk.Split(proposed)
	oldLine, newLine := 1, 1
	equal := func(hunk int) {
		rows = append(rows, row{kind: same, text: after[newLine-1], old: oldLine, new: newLine, hunk: hunk})
		oldLine, newLine = oldLine+1, newLine+1
	}
	for i, c := range changes {
		for newLine < c.New {
			equal(-1)
		}
		if c.undone {
			for range c.NewLines {
				equal(i)
			}
			for n := range c.OldLines {
				rows = append(rows, row{kind: undone, text: mine[c.Old-1+n], hunk: i})
			}
			if c.OldLines == 0 {
				rows = append(rows, row{kind: undone, text: "(to be removed)", hunk: i})
			}
			continue
		}
		for range c.OldLines {
			rows = append(rows, row{kind: removed, text: before[oldLine-1], old: oldLine, hunk: i})
			oldLine++
		}
		for range c.NewLines {
			yours := slices.ContainsFunc(edits, func(h hunk.Hunk) bool { return h.New <= newLine && newLine < h.New+h.NewLines })
			rows = append(rows, row{kind: added, text: after[newLine-1], yours: yours, new: newLine, hunk: i})
			newLine++
		}
	}
	for newLine <= len(after) {
		equal(-1)
	}
	rows = folded(rows)
	crlf := usesCRLF(original) && usesCRLF(proposed) && usesCRLF(text)
	for i := range rows {
		line := rows[i].text
		if crlf {
			line = strings.TrimSuffix(line, "\r")
		}
		rows[i].shown = termtext.Visible(line)
	}
	markWords(rows)
	for _, p := range paired(rows) {
		if p.left != nil && p.right != nil && p.left != p.right {
			p.left.from = firstDifference(p.left.shown, p.right.shown)
			p.right.from = p.left.from
		}
	}
	return rows, changes
}

// usesCRLF reports whether each line of a text that ends does so with CR and LF, and no
// other place has one of the two. A text in one line without an end may use any line endings.
func usesCRLF(text string) bool {
	n := strings.Count(text, "\r\n")
	return strings.Count(text, "\n") == n && strings.Count(text, "\r") == n
}

// firstDifference returns the first column in which two lines differ.
func firstDifference(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return ansi.StringWidth(strings.ToValidUTF8(a[:n], ""))
}

// touches reports whether a hunk is in, or at, one of the others.
func touches(hunks []hunk.Hunk, h hunk.Hunk) bool {
	return slices.ContainsFunc(hunks, func(o hunk.Hunk) bool {
		return h.New <= o.New+o.NewLines && o.New <= h.New+h.NewLines
	})
}

// folded replaces rows that are far from any change with folds.
func folded(rows []row) []row {
	near := make([]bool, len(rows))
	for i, r := range rows {
		if r.hunk >= 0 {
			for j := max(0, i-around); j <= min(len(rows)-1, i+around); j++ {
				near[j] = true
			}
		}
	}
	var out []row
	for i := 0; i < len(rows); {
		j := i
		for j < len(rows) && !near[j] {
			j++
		}
		if j-i > 1 {
			out = append(out, row{kind: fold, hunk: -1, count: j - i})
			i = j
			continue
		}
		out = append(out, rows[i])
		i++
	}
	return out
}

// A pair is one line of a side-by-side view; nil is a gap.
type pair struct{ left, right *row }

// paired returns the rows as pairs: a removed line next to the one that replaces it.
func paired(rows []row) (pairs []pair) {
	for i := 0; i < len(rows); {
		if rows[i].kind != removed && rows[i].kind != added {
			r := &rows[i]
			if r.kind == undone {
				pairs = append(pairs, pair{right: r})
			} else {
				pairs = append(pairs, pair{r, r})
			}
			i++
			continue
		}
		gone := i
		for i < len(rows) && rows[i].kind == removed && rows[i].hunk == rows[gone].hunk {
			i++
		}
		come := i
		for i < len(rows) && rows[i].kind == added && rows[i].hunk == rows[gone].hunk {
			i++
		}
		for n := range max(come-gone, i-come) {
			var p pair
			if gone+n < come {
				p.left = &rows[gone+n]
			}
			if come+n < i {
				p.right = &rows[come+n]
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}
