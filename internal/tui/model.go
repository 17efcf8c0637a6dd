package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"pollux/internal/adapter"
	"pollux/internal/hunk"
)

// An item is a diff in review.
type item struct {
	adapter.Diff
	text    string
	rows    []row
	changes []change
	at      int // the current change
	top     int // the first row on the screen
	// conflict is what the companion said when the file had changed.
	conflict *adapter.DiffAcceptResult
}

func (it *item) layOut() {
	it.rows, it.changes = layOut(it.Original, it.Proposed, it.text)
	it.at = max(0, min(it.at, len(it.changes)-1))
}

// A model is the program's state. Its methods run in the program's loop.
type model struct {
	ctx    context.Context
	cfg    Config
	client *adapter.Client
	texts  *texts

	width, height int
	items         []*item
	current       int
	clis          int
	message       string
	help          bool
	split         *bool // the user's choice of the layout
	gone          bool
	had           bool // something has waited
}

func (m *model) Init() tea.Cmd { return nil }

func (m *model) item() *item {
	if m.current < len(m.items) {
		return m.items[m.current]
	}
	return nil
}

func (m *model) find(id string) int {
	return slices.IndexFunc(m.items, func(it *item) bool { return it.ID == id })
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.show()
	case opened:
		if m.find(msg.ID) < 0 {
			it := &item{Diff: adapter.Diff(msg), text: adapter.Diff(msg).Text()}
			it.layOut()
			m.items, m.had = append(m.items, it), true
			if len(m.items) == 1 {
				m.message = ""
				m.show()
			}
		}
	case closed:
		return m, m.drop(msg.ID, msg.Reason)
	case changed:
		if i := m.find(msg.ID); i >= 0 {
			it := m.items[i]
			if msg.State != "" {
				it.State = msg.State
				m.message = "the CLI that proposed this has ended: y writes the file, r discards it"
			}
			if msg.Content != nil && *msg.Content != it.text {
				it.text = *msg.Content
				it.layOut()
			}
		}
	case clis:
		m.clis = int(msg)
	case said:
		m.message = string(msg)
	case ended:
		m.gone = true
		return m, tea.Quit
	case decided:
		return m, m.answer(msg)
	case edited:
		m.edited(msg)
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// drop takes a diff off the screen that has been decided on.
func (m *model) drop(id, reason string) tea.Cmd {
	i := m.find(id)
	if i < 0 {
		return nil
	}
	m.message = filepath.Base(m.items[i].Path) + ": " + reason
	m.items = slices.Delete(m.items, i, i+1)
	if m.current > i || m.current >= len(m.items) {
		m.current = max(0, m.current-1)
	}
	if m.cfg.Once && len(m.items) == 0 {
		return tea.Quit
	}
	m.show()
	return nil
}

// within bounds an answer of the companion's.
const within = 10 * time.Second

// decide asks the companion to accept, save, or (with no text) reject.
func (m *model) decide(it *item, accept bool, overwrite string) tea.Cmd {
	id, text, orphan := it.ID, it.text, it.State == adapter.StateOrphaned
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, within)
		defer cancel()
		a := adapter.DiffAccept{ID: id, Content: text, Overwrite: overwrite}
		d := decided{id: id}
		switch {
		case !accept:
			d.err = m.client.Reject(ctx, id)
		case orphan:
			d.result, d.err = m.client.Save(ctx, a)
		default:
			d.result, d.err = m.client.Accept(ctx, a)
		}
		return d
	}
}

func (m *model) answer(d decided) tea.Cmd {
	i := m.find(d.id)
	switch {
	case d.err != nil:
		m.message = d.err.Error()
	case i < 0:
	case d.result.Status == adapter.StatusConflict:
		m.items[i].conflict = &d.result
		m.message = filepath.Base(m.items[i].Path) + " has changed on disk: o overwrites it, d compares with it, Esc not now"
	case d.result.Status == adapter.StatusEmpty:
		m.message = d.result.Message
	}
	return nil
}

// set makes a text the diff's, and tells the companion.
func (m *model) set(it *item, text string) tea.Cmd {
	it.text = text
	it.layOut()
	m.texts.set(it.ID, text)
	m.show()
	return func() tea.Msg {
		m.client.Notify(m.ctx, adapter.MethodDiffEdit, adapter.DiffChange{ID: it.ID, Content: &text})
		return nil
	}
}

func (m *model) key(key string) tea.Cmd {
	m.message = ""
	if m.help {
		m.help = false
		return nil
	}
	it := m.item()
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "?":
		m.help = true
		return nil
	}
	if it == nil {
		return nil
	}
	if c := it.conflict; c != nil {
		it.conflict = nil
		switch key {
		case "o":
			return m.decide(it, true, c.Version)
		case "d":
			it.Original = c.Disk
			it.layOut()
			m.message = "compared with what the file holds now"
			m.show()
		}
		return nil
	}
	switch key {
	case "y", "c":
		return m.decide(it, true, "")
	case "r", "x":
		return m.decide(it, false, "")
	case "n":
		it.at = min(it.at+1, max(0, len(it.changes)-1))
		m.show()
	case "p":
		it.at = max(it.at-1, 0)
		m.show()
	case "u", "a":
		return m.take(it, key == "u")
	case "e":
		return m.edit(it)
	case "tab":
		m.current = (m.current + 1) % len(m.items)
	case "shift+tab":
		m.current = (m.current + len(m.items) - 1) % len(m.items)
	case "v":
		split := !m.sideBySide()
		m.split = &split
		m.show()
	case "j", "down":
		it.top++
	case "k", "up":
		it.top--
	case "space", "pgdown", "f", "ctrl+f", "ctrl+d":
		it.top += m.body() - 1
	case "pgup", "b", "ctrl+b", "ctrl+u":
		it.top -= m.body() - 1
	case "g", "home":
		it.top = 0
	case "G", "end":
		it.top = len(it.rows)
	}
	m.clamp(it)
	return nil
}

// take undoes the current change, or takes it over again.
func (m *model) take(it *item, undo bool) tea.Cmd {
	if len(it.changes) == 0 {
		m.message = "there is no hunk"
		return nil
	}
	c := it.changes[it.at]
	switch {
	case undo && c.undone:
		m.message = "it is undone already: a takes it again"
		return nil
	case undo:
		return m.set(it, c.Replace(it.Original, it.text))
	case c.undone:
		return m.set(it, c.Replace(it.Proposed, it.text))
	}
	// A change that the user edited can become the proposed one again.
	h, ok := hunk.At(hunk.Between(it.Proposed, it.text), c.line)
	if !ok {
		m.message = "it is as proposed already: u undoes it"
		return nil
	}
	return m.set(it, h.Replace(it.Proposed, it.text))
}

// edit opens the text in the user's editor.
func (m *model) edit(it *item) tea.Cmd {
	dir, err := os.MkdirTemp("", "pollux-edit-") // 0700
	if err != nil {
		m.message = err.Error()
		return nil
	}
	path := filepath.Join(dir, filepath.Base(it.Path))
	if err := os.WriteFile(path, []byte(it.text), 0o600); err != nil {
		m.message = err.Error()
		return nil
	}
	id := it.ID
	cmd := exec.CommandContext(m.ctx, "sh", "-c", m.cfg.Editor+` "$1"`, "sh", path)
	return tea.ExecProcess(cmd, func(err error) tea.Msg {
		data, readErr := os.ReadFile(path)
		return edited{id: id, path: path, text: string(data), err: errors.Join(err, readErr)}
	})
}

func (m *model) edited(msg edited) {
	i := m.find(msg.id)
	switch {
	case msg.err != nil:
		m.message = fmt.Sprintf("the editor failed (%v); the text is in %s", msg.err, msg.path)
		return
	case i < 0:
		m.message = "it was decided on while you edited: your text is in " + msg.path
		return
	}
	os.RemoveAll(filepath.Dir(msg.path))
	if it := m.items[i]; msg.text != it.text {
		if cmd := m.set(it, msg.text); cmd != nil {
			cmd() // in order, before any decision
		}
	}
}

// Where there are this many columns two texts go side by side.
const wide = 120

func (m *model) sideBySide() bool {
	if m.split != nil {
		return *m.split
	}
	return m.width >= wide
}

// list is how many lines the list of diffs has.
func (m *model) list() int {
	if len(m.items) < 2 {
		return 0
	}
	return min(len(m.items), max(2, m.height/5))
}

// body is how many lines the diff has.
func (m *model) body() int { return max(1, m.height-3-m.list()) }

// show scrolls to the current change.
func (m *model) show() {
	it := m.item()
	if it == nil {
		return
	}
	first, last := -1, -1
	for i, hunk := range m.hunksOfLines(it) {
		if hunk == it.at && len(it.changes) > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first >= 0 && (first < it.top || last >= it.top+m.body()) {
		it.top = first - min(around, max(0, m.body()-(last-first+1)))
	}
	m.clamp(it)
}

// hunksOfLines is the hunk of each line on the screen.
func (m *model) hunksOfLines(it *item) (hunks []int) {
	if !m.sideBySide() {
		for _, r := range it.rows {
			hunks = append(hunks, r.hunk)
		}
		return hunks
	}
	for _, p := range paired(it.rows) {
		h := -1
		for _, r := range []*row{p.left, p.right} {
			if r != nil && r.hunk >= 0 {
				h = r.hunk
			}
		}
		hunks = append(hunks, h)
	}
	return hunks
}

func (m *model) clamp(it *item) {
	n := len(it.rows)
	if m.sideBySide() {
		n = len(paired(it.rows))
	}
	it.top = max(0, min(it.top, n-m.body()))
}
