package term

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
)

// A line is one line of the screen: a row, a pair of rows, or a part of them if long
// lines are wrapped.
type line struct {
	left  *row // nil in the unified view
	right *row
	part  int
}

// hunk returns the hunk of the line, or -1.
func (l line) hunk() int {
	for _, r := range []*row{l.left, l.right} {
		if r != nil && r.hunk >= 0 {
			return r.hunk
		}
	}
	return -1
}

// columns returns how wide the cells of the two sides are.
func (m *model) columns() (left, right int) {
	if !m.sideBySide() {
		return 0, m.width - 1
	}
	left = (m.width - 3) / 2
	return left, m.width - 3 - left
}

// room returns how many columns of a cell its text has. The rest has the line's number
// and the sign.
func room(width int) int { return max(1, width-7) }

// lines returns the lines of the diff.
func (m *model) lines(it *item) (all []line) {
	left, right := m.columns()
	height := func(r *row, width int) int {
		if r == nil || !m.wrap {
			return 1
		}
		return len(breaks(r.shown, room(width)))
	}
	add := func(l, r *row) {
		for part := range max(height(l, left), height(r, right)) {
			all = append(all, line{l, r, part})
		}
	}
	if m.sideBySide() {
		for _, p := range paired(it.rows) {
			add(p.left, p.right)
		}
		return all
	}
	for i := range it.rows {
		add(nil, &it.rows[i])
	}
	return all
}

// breaks returns the offsets at which the parts of a text start when it is wrapped after some columns.
func breaks(text string, columns int) []int {
	starts := []int{0}
	if len(text) <= columns {
		return starts
	}
	column := 0
	for i := 0; i < len(text); {
		cluster, width := ansi.FirstGraphemeCluster(text[i:], ansi.GraphemeWidth)
		if column > 0 && column+width > columns {
			starts = append(starts, i)
			column = 0
		}
		column += width
		i += len(cluster)
	}
	return starts
}

// draw returns a line as the terminal shows it.
func (m *model) draw(it *item, l line) string {
	if l.right != nil && l.right.kind == fold {
		return fmt.Sprintf("%s       ... %d lines%s", faint, l.right.count, plain)
	}
	mark := " "
	if h := l.hunk(); h >= 0 && it.selected(h) {
		mark = bold + ">" + plain
	}
	left, right := m.columns()
	if !m.sideBySide() {
		number := l.right.new
		if number == 0 {
			number = l.right.old
		}
		return mark + m.cell(it, l.right, number, right, l.part)
	}
	a, b := strings.Repeat(" ", left), strings.Repeat(" ", right)
	if l.left != nil {
		a = m.cell(it, l.left, l.left.old, left, l.part)
	}
	if l.right != nil {
		b = m.cell(it, l.right, l.right.new, right, l.part)
	}
	return mark + a + "│" + b
}

// cell returns a part of a row with its number, width columns wide. Without wrapping, it
// cuts a longer line so that the first difference is visible, shifted by what the user
// has scrolled.
func (m *model) cell(it *item, r *row, number, width, part int) string {
	n := "     "
	if number > 0 && part == 0 {
		n = fmt.Sprintf("%5d", number)
	}
	columns := room(width)
	var text string
	if m.wrap {
		starts := append(breaks(r.shown, columns), len(r.shown))
		if part+1 >= len(starts) { // the other side has more parts
			return strings.Repeat(" ", width)
		}
		text = m.theme.paint(r, starts[part], starts[part+1])
	} else {
		left := it.left
		if r.from > columns*3/4 {
			left += r.from - columns/2
		}
		text = m.theme.paint(r, 0, len(r.shown))
		if left > 0 {
			text = ansi.TruncateLeft(text, left+1, "…")
		}
		text = ansi.Truncate(text, columns, "…")
	}
	sign := r.sign()
	return faint + n + plain + " " + sign.colour + sign.text + plain + m.theme.pad(r, text, columns)
}

// A hint is a key in the footer.
type hint struct {
	text string
	rank int // the hints with the highest ranks are left out first
}

// fit returns the hints that fit in a footer.
func fit(hints []hint, width int) string {
	for {
		texts := make([]string, len(hints))
		last := 0
		for i, h := range hints {
			texts[i] = h.text
			if h.rank > hints[last].rank {
				last = i
			}
		}
		line := strings.Join(texts, "  ")
		if len(line) <= width || len(hints) < 2 {
			return line
		}
		hints = slices.Delete(slices.Clone(hints), last, last+1)
	}
}

// footer returns the keys for the diff in view. If the terminal is too narrow for the first two
// with what they do, it has only the keys, down to the one for help.
func (m *model) footer(it *item) string {
	several := len(m.items) > 1
	var hints []hint
	add := func(when bool, text string, rank int) {
		if when {
			hints = append(hints, hint{text, rank})
		}
	}
	changes := it.ReadOnly == ""
	switch {
	case it.State == editor.StateAccepted:
		add(several, "tab next", 2)
	case !m.settled:
		if len(appeared) < m.width {
			return appeared
		}
		return "Just appeared: look first."
	case it.conflict != nil:
		hints = []hint{{"o overwrite the file", 0}, {"d compare", 1}, {"Esc cancel", 2}}
	case it.ranging:
		add(true, "n/p extend", 1)
		add(true, "u undo the range", 0)
		add(true, "a redo it", 3)
		add(true, "Esc end the range", 4)
	default:
		accept, reject := "y accept", "r reject"
		if it.State == editor.StateOutside {
			accept, reject = "y save", "r keep"
		}
		add(true, accept, 0)
		add(true, reject, 1)
		add(true, "n/p hunk", 5)
		add(changes, "u undo", 4)
		add(changes, "a redo", 6)
		add(changes, "V range", 9)
		add(changes, "e edit", 7)
		add(true, "w wrap", 10)
		add(several, "tab next", 8)
		add(!changes, "(read-only)", 11)
	}
	add(it.conflict == nil, "? help", 2)
	add(it.conflict == nil, "q leave", 3)
	line := fit(hints, m.width-2)
	if strings.Contains(line, hints[0].text+"  "+hints[1].text) {
		return line
	}
	var keys []string
	for _, h := range hints {
		if key, _, _ := strings.Cut(h.text, " "); h.rank <= 3 {
			keys = append(keys, key)
		}
	}
	return strings.Join(keys, " ")
}
