package hunk

import (
	"slices"
	"sort"
)

// maxEdits limits the search for a shortest edit. Lines between two anchors that differ
// by more become one hunk.
const maxEdits = 2000

// A matching pairs the lines of two texts. The numbers stand for the texts of lines.
// web/src/lines.ts has the same algorithm, so that the browser page shows the same hunks
// while the user types.
type matching struct {
	old, new []int
	pairs    []int // for each old line, the new line that it became, or -1
}

// match pairs the lines that two texts have in common, in order.
func match(oldLines, newLines []int) []int {
	m := matching{old: oldLines, new: newLines, pairs: make([]int, len(oldLines))}
	for i := range m.pairs {
		m.pairs[i] = -1
	}
	o, oEnd, n, nEnd := m.trim(0, len(oldLines), 0, len(newLines))
	for _, a := range m.anchors(o, oEnd, n, nEnd) {
		m.between(o, a.old, n, a.new)
		m.pairs[a.old] = a.new
		o, n = a.old+1, a.new+1
	}
	m.between(o, oEnd, n, nEnd)
	return m.pairs
}

// trim pairs the first and the last lines of two ranges as long as they are equal, and
// returns the ranges that are left.
func (m *matching) trim(o, oEnd, n, nEnd int) (int, int, int, int) {
	for ; o < oEnd && n < nEnd && m.old[o] == m.new[n]; o, n = o+1, n+1 {
		m.pairs[o] = n
	}
	for ; o < oEnd && n < nEnd && m.old[oEnd-1] == m.new[nEnd-1]; oEnd, nEnd = oEnd-1, nEnd-1 {
		m.pairs[oEnd-1] = nEnd - 1
	}
	return o, oEnd, n, nEnd
}

// An anchor is a line that occurs once in either text.
type anchor struct{ old, new int }

// anchors returns as many anchors as possible that are in the same order in both ranges.
func (m *matching) anchors(o, oEnd, n, nEnd int) []anchor {
	const several = -1
	in := make(map[int]int) // where a line is in the new range
	for i := n; i < nEnd; i++ {
		if _, found := in[m.new[i]]; found {
			in[m.new[i]] = several
		} else {
			in[m.new[i]] = i
		}
	}
	count := make(map[int]int)
	for _, line := range m.old[o:oEnd] {
		count[line]++
	}
	// The longest increasing sequence: last[i] ends the best one of i+1 anchors.
	var all []anchor
	var last, before []int // indexes of all
	for i := o; i < oEnd; i++ {
		at, found := in[m.old[i]]
		if !found || at == several || count[m.old[i]] > 1 {
			continue
		}
		p := sort.Search(len(last), func(p int) bool { return all[last[p]].new > at })
		b := -1
		if p > 0 {
			b = last[p-1]
		}
		if p == len(last) {
			last = append(last, 0)
		}
		last[p] = len(all)
		all, before = append(all, anchor{i, at}), append(before, b)
	}
	if len(last) == 0 {
		return nil
	}
	var found []anchor
	for i := last[len(last)-1]; i >= 0; i = before[i] {
		found = append(found, all[i])
	}
	slices.Reverse(found)
	return found
}

// between pairs the lines of two ranges with as few edits as possible (Myers 1986).
func (m *matching) between(o, oEnd, n, nEnd int) {
	o, oEnd, n, nEnd = m.trim(o, oEnd, n, nEnd)
	oldLines, newLines := m.old[o:oEnd], m.new[n:nEnd]
	if len(oldLines) == 0 || len(newLines) == 0 {
		return
	}
	// reached[edits] has how many old lines each diagonal gets past. The diagonal of index
	// i has 2*i-edits old lines more than new lines.
	var reached [][]int
	for edits := 0; edits <= min(maxEdits, len(oldLines)+len(newLines)); edits++ {
		row := make([]int, edits+1)
		for i := range row {
			x := 0
			switch {
			case edits == 0:
			case inserts(reached[edits-1], i):
				x = reached[edits-1][i]
			default:
				x = reached[edits-1][i-1] + 1
			}
			y := x - (2*i - edits)
			for x < len(oldLines) && y < len(newLines) && oldLines[x] == newLines[y] {
				x, y = x+1, y+1
			}
			row[i] = x
			if x == len(oldLines) && y == len(newLines) {
				m.back(reached, o, oEnd, n, nEnd)
				return
			}
		}
		reached = append(reached, row)
	}
}

// inserts reports whether the way to the i-th diagonal that leads farther is to insert a
// line, not to delete one. before is how far the diagonals got with one edit less.
func inserts(before []int, i int) bool {
	return i == 0 || i < len(before) && before[i-1] < before[i]
}

// back pairs the lines along the way to the ends of both ranges.
func (m *matching) back(reached [][]int, o, oEnd, n, nEnd int) {
	x, y := oEnd-o, nEnd-n
	for edits := len(reached); edits >= 0; edits-- {
		fromX, fromY, after := 0, 0, 0
		if edits > 0 {
			i, row := (x-y+edits)/2, reached[edits-1]
			if inserts(row, i) {
				fromX = row[i]
				fromY, after = fromX-(x-y+1), fromX
			} else {
				fromX = row[i-1]
				fromY, after = fromX-(x-y-1), fromX+1
			}
		}
		for x > after {
			x, y = x-1, y-1
			m.pairs[o+x] = n + y
		}
		x, y = fromX, fromY
	}
}
