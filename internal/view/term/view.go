package term

import (
	"fmt"
	"path/filepath"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
	"pollux/internal/termtext"
)

// The terminal's own sixteen colours, which follow its theme. Bubble Tea removes them
// for terminals without colours; signs carry the same information.
const (
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	faint   = "\x1b[2m"
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	plain   = "\x1b[m"
)

func (m *model) View() tea.View {
	var lines []string
	switch {
	case m.help:
		lines = m.helpLines()
	case m.item() == nil:
		lines = m.emptyLines()
	default:
		lines = m.diffLines()
	}
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, m.width, "")
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle = "pollux review"
	v.KeyboardEnhancements.ReportEventTypes = true // a held key never decides
	return v
}

// appeared replaces the list of keys until the user can decide.
const appeared = "This change has just appeared. Look at it, then decide."

const keys = "y accept  r reject  n/p hunk  u undo  a take  e edit  tab next  ? help  q leave"

const readOnlyKeys = "y accept  r reject  n/p hunk  tab next  ? help  q leave  (the text is read-only)"

func (m *model) helpLines() []string {
	return strings.Split(strings.TrimPrefix(`
 y          accept: the agent writes the file with the text shown here
 r          reject
 n, p       next hunk, previous hunk
 u          undo the hunk: the text on disk
 a          take the hunk: the proposed text
 e          edit the text in $EDITOR
 Tab        next pending change
 v          side by side, or one below the other
 j, k, Space, b, g, G   scroll;  h, l   scroll sideways
 q          leave without a decision

 You can decide on a change that has just appeared after half a second without
 a key press; until then y, r, u, a, e and q do nothing.

 +  added     -  removed     ~  proposed, but undone by you

 Press any key to continue.`, "\n"), "\n")
}

func (m *model) emptyLines() []string {
	lines := []string{"", " No pending changes.", ""}
	if m.agents == 0 {
		lines = append(lines, " No agent is connected. In Gemini CLI, type /ide enable and restart it.")
	} else {
		lines = append(lines, " Changes that an agent proposes appear here.")
	}
	if m.leaving {
		for _, note := range m.notes {
			note = termtext.Visible(strings.TrimSpace(note))
			for line := range strings.Lines(ansi.Wrap(note, max(20, m.width-2), "")) {
				lines = append(lines, " "+strings.TrimSuffix(line, "\n"))
			}
		}
	}
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	footer := "q leave"
	if m.leaving {
		footer = "Read this first."
		if m.settled {
			footer = "any key ends"
		}
	}
	return append(lines, " "+termtext.Visible(strings.TrimSpace(m.message)), faint+" "+footer+plain)
}

func (m *model) diffLines() []string {
	it := m.item()
	var lines []string
	if n := m.list(); n > 0 {
		from := max(0, min(m.current-n/2, len(m.items)-n))
		for i := from; i < from+n; i++ {
			mark := "  "
			if i == m.current {
				mark = "> "
			}
			lines = append(lines, mark+title(m.items[i], "", m.width-2))
		}
	}
	hunk := "   no difference"
	if len(it.changes) > 0 {
		hunk = fmt.Sprintf("   hunk %d of %d", it.at+1, len(it.changes))
	}
	lines = append(lines, reverse+pad(" "+title(it, hunk, m.width-1), m.width)+plain)
	var body []string
	if m.sideBySide() {
		body = m.sides(it)
	} else {
		body = m.unified(it)
	}
	body = body[min(it.top, len(body)):]
	for i := range m.body() {
		if i < len(body) {
			lines = append(lines, body[i])
		} else {
			lines = append(lines, "")
		}
	}
	footer := keys
	if it.ReadOnly != "" {
		footer = readOnlyKeys
	}
	switch {
	case it.State == editor.StateAccepted:
		footer = "tab next  ? help  q leave"
	case !m.settled:
		footer = appeared
	case it.conflict != nil:
		footer = "o overwrite the file  d compare with the file  Esc cancel"
	}
	return append(lines, " "+termtext.Visible(strings.TrimSpace(m.message)), faint+" "+footer+plain)
}

// title returns the line that names a change. It cuts the folder from the left if
// the line would be wider than width columns.
func title(it *item, suffix string, width int) string {
	rest := "  " + termtext.Visible(it.AgentName())
	if !it.Exists {
		rest += "  (new file)"
	}
	switch it.State {
	case editor.StateOrphaned:
		rest += "  (the agent has ended)"
	case editor.StateAccepted:
		rest += "  (accepted: waiting for the agent to write it)"
	}
	rest += suffix
	name := termtext.Visible(filepath.Base(it.Path))
	dir := filepath.Dir(it.Path)
	if dir == "." {
		return name + rest
	}
	dir = termtext.Visible(dir)
	room := max(2, width-ansi.StringWidth(name+"  "+rest))
	if over := ansi.StringWidth(dir) - room; over > 0 {
		dir = ansi.TruncateLeft(dir, over+1, "…")
	}
	return name + "  " + dir + rest
}

var signs = map[kind]struct{ sign, colour string }{
	same: {" ", ""}, removed: {"-", red}, added: {"+", green}, undone: {"~", yellow},
}

func (m *model) unified(it *item) (lines []string) {
	for i := range it.rows {
		r := &it.rows[i]
		if r.kind == fold {
			lines = append(lines, foldLine(r))
			continue
		}
		number := r.new
		if number == 0 {
			number = r.old
		}
		lines = append(lines, m.mark(it, r)+cell(it, r, number, m.width-1))
	}
	return lines
}

func (m *model) sides(it *item) (lines []string) {
	left := (m.width - 3) / 2
	right := m.width - 3 - left
	for _, p := range paired(it.rows) {
		if p.right != nil && p.right.kind == fold {
			lines = append(lines, foldLine(p.right))
			continue
		}
		l, r := strings.Repeat(" ", left), strings.Repeat(" ", right)
		mark := " "
		if p.left != nil {
			l, mark = cell(it, p.left, p.left.old, left), m.mark(it, p.left)
		}
		if p.right != nil {
			r, mark = cell(it, p.right, p.right.new, right), m.mark(it, p.right)
		}
		lines = append(lines, mark+l+"│"+r)
	}
	return lines
}

func foldLine(r *row) string {
	return fmt.Sprintf("%s       ... %d lines%s", faint, r.count, plain)
}

// mark marks the rows of the current hunk.
func (m *model) mark(it *item, r *row) string {
	if r.hunk >= 0 && r.hunk == it.at {
		return bold + ">" + plain
	}
	return " "
}

// cell returns a line with its number, width columns wide. It cuts a longer line so
// that the first difference is visible, shifted by what the user has scrolled.
func cell(it *item, r *row, number, width int) string {
	n := "     "
	if number > 0 {
		n = fmt.Sprintf("%5d", number)
	}
	room := max(1, width-7)
	text, left := termtext.Visible(r.text), it.left
	if r.from > room*3/4 {
		left += r.from - room/2
	}
	if left > 0 {
		text = ansi.TruncateLeft(text, left+1, "…")
	}
	s := signs[r.kind]
	text = pad(ansi.Truncate(s.sign+text, room+1, "…"), room+1)
	return faint + n + plain + " " + s.colour + text + plain
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}
