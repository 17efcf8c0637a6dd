package term

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"pollux/internal/editor"
	"pollux/internal/hunk"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
)

// An item is a diff that the program shows.
type item struct {
	editor.Diff
	text    string
	rows    []row
	changes []change
	at      int // the current change
	// colours are the texts' colours; lighting is set while they are being found.
	colours  colours
	lighting bool
	// ranging is set while the user selects a range of changes, from first to at.
	ranging bool
	first   int
	top     int // the first row on the screen
	left    int // how many columns the texts are shifted
	// deciding is set until the companion has answered.
	deciding bool
	// conflict is the companion's answer if the file had changed.
	conflict *editor.DiffAcceptResult
	// version counts the texts that other clients sent.
	version int
}

func (it *item) layOut() {
	it.rows, it.changes = layOut(it.Original, it.Proposed, it.text)
	it.colour()
	it.at = max(0, min(it.at, len(it.changes)-1))
	it.ranging = false
}

// selection returns the first and the last of the changes that are selected.
func (it *item) selection() (from, to int) {
	if it.ranging {
		return min(it.first, it.at), max(it.first, it.at)
	}
	return it.at, it.at
}

func (it *item) selected(change int) bool {
	from, to := it.selection()
	return from <= change && change <= to
}

// A model is the program's state. Its methods run in the program's loop.
type model struct {
	ctx    context.Context
	cfg    Config
	client *editor.Client
	texts  *texts

	width, height int
	items         []*item
	current       int
	agents        []editor.Agent // the connected ones
	roots         []string       // the workspace's directories
	outside       editor.Outside
	unconnected   string // [editor.Status.Unconnected]
	message       string
	notice        message // the last message of the companion
	help          bool
	helpTop       int   // the first line of the help on the screen
	split         *bool // the user's choice of the layout
	wrap          bool  // long lines are wrapped
	theme         theme
	gone          bool
	leaving       bool // any key ends the program
	left          bool // the user left while a change was pending
	// notes are messages that the user must see before the program ends
	// automatically.
	notes []string

	// The user can decide on a change only after it has been in view for settleDelay
	// without a key press: a key may have been meant for another change, or for the
	// agent that a popup has covered. Then the change stays settled while it is in
	// view.
	inView  sight
	settled bool
	looks   int // how often the wait has started
}

// A sight identifies what the user sees: a diff with a text of another client, or the
// messages before the program ends.
type sight struct {
	it       *item
	version  int
	conflict *editor.DiffAcceptResult
	leaving  bool
}

func (m *model) sight() sight {
	it := m.item()
	switch {
	case m.help:
		return sight{}
	case it == nil:
		return sight{leaving: m.leaving}
	}
	return sight{it: it, version: it.version, conflict: it.conflict}
}

// settleDelay is split into parts. A program that did not run for a while receives the
// keys of that time after at most one part.
const (
	settleDelay = 500 * time.Millisecond
	settleParts = 5
)

// look starts the wait again when the user sees something else, or has pressed a key
// too early.
func (m *model) look(pressed bool) tea.Cmd {
	s := m.sight()
	if s == m.inView && (m.settled || !pressed) {
		return nil
	}
	m.inView, m.settled = s, false
	m.looks++
	if s == (sight{}) {
		return nil
	}
	return rest(m.looks, 1)
}

// rest waits for one part of settleDelay.
func rest(look, part int) tea.Cmd {
	return tea.Tick(settleDelay/settleParts, func(time.Time) tea.Msg { return rested{look, part} })
}

func (m *model) rested(r rested) tea.Cmd {
	switch {
	case r.look != m.looks:
		return nil
	case r.part < settleParts:
		return rest(r.look, r.part+1)
	}
	m.settled = true
	return nil
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
	cmd := m.update(msg)
	pressed := false
	switch msg.(type) {
	case tea.KeyPressMsg, tea.PasteMsg:
		pressed = true
	}
	return m, tea.Batch(cmd, m.look(pressed), m.light())
}

func (m *model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.show()
	case tea.ColorProfileMsg:
		return askBackground(msg)
	case tea.BackgroundColorMsg:
		m.theme = background(msg)
	case lit:
		if i := m.find(msg.id); i >= 0 {
			m.items[i].colours, m.items[i].lighting = msg.colours, false
			m.items[i].colour()
		}
	case opened:
		if m.find(msg.ID) < 0 {
			it := &item{Diff: editor.Diff(msg), text: editor.Diff(msg).Text()}
			it.layOut()
			i := m.add(it)
			m.leaving = false
			if len(m.items) == 1 || it.State == editor.StateOutside { // the user has asked for the latter
				m.current = i
				m.message = ""
				m.show()
			}
		}
	case closed:
		return m.drop(msg.ID, msg.Reason)
	case changed:
		if i := m.find(msg.ID); i >= 0 {
			it := m.items[i]
			if msg.State != "" {
				it.State = msg.State
			}
			if msg.State == editor.StateOrphaned {
				m.message = fmt.Sprintf("%s, which proposed %s, is disconnected: y writes the file, r discards it",
					it.AgentName(), filepath.Base(it.Path))
			}
			if msg.Content != nil {
				m.follow(it)
			}
		}
	case agents:
		m.agents = msg
	case outside:
		m.outside = editor.Outside(msg)
	case message:
		if slices.Contains(m.silent(), msg.text) {
			break // the view shows it
		}
		m.message, m.notice = msg.text, msg
		if len(m.notes) > 0 && msg.level != "info" {
			m.notes = append(m.notes, msg.text) // the next step
		}
	case rested:
		return m.rested(msg)
	case ended:
		m.gone = true
		m.items = nil
		return m.quit()
	case nothingPending:
		if len(m.items) == 0 {
			return m.quit()
		}
	case decided:
		m.answer(msg)
	case failed:
		m.message = msg.err.Error()
	case edited:
		m.edited(msg)
	case tea.KeyPressMsg:
		return m.key(msg.String(), msg.IsRepeat)
	}
	return nil
}

// add adds a diff after the others in its folder, as the list shows them, and returns its index.
func (m *model) add(it *item) int {
	i := len(m.items)
	for j, other := range m.items {
		if filepath.Dir(other.Path) == filepath.Dir(it.Path) {
			i = j + 1
		}
	}
	m.items = slices.Insert(m.items, i, it)
	if i <= m.current && len(m.items) > 1 {
		m.current++
	}
	return i
}

// drop removes a closed diff from the screen.
func (m *model) drop(id, reason string) tea.Cmd {
	if m.notice.diff == id && m.message == m.notice.text {
		m.message = ""
	}
	i := m.find(id)
	if i < 0 {
		return nil
	}
	name := filepath.Base(m.items[i].Path)
	m.message = name + ": " + reason
	if reason == editor.ReasonUnwritten {
		m.message = name + ": accepted, but not written"
		m.notes = append(m.notes, m.message)
	}
	m.items = slices.Delete(m.items, i, i+1)
	if m.current > i || m.current >= len(m.items) {
		m.current = max(0, m.current-1)
	}
	if m.cfg.Once && len(m.items) == 0 {
		return m.quit()
	}
	m.show()
	return nil
}

// quit ends the program, or waits for a key if there is something to read.
func (m *model) quit() tea.Cmd {
	if m.leaving = m.texts.keeps() || len(m.notes) > 0; m.leaving {
		m.help = false
		return nil
	}
	return tea.Quit
}

// answerTimeout limits the wait for the companion's answer.
const answerTimeout = 10 * time.Second

// decide asks the companion to accept or save the text, or to reject the change.
func (m *model) decide(it *item, accept bool, overwrite string) tea.Cmd {
	if it.deciding {
		return nil
	}
	it.deciding = true
	id, text, save := it.ID, it.text, it.NoAgent()
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, answerTimeout)
		defer cancel()
		m.texts.flush(ctx)
		a := editor.DiffAccept{ID: id, Content: text, Overwrite: overwrite}
		d := decided{id: id}
		switch {
		case !accept:
			d.err = m.client.Reject(ctx, id)
		case save:
			d.result, d.err = m.client.Save(ctx, a)
		default:
			d.result, d.err = m.client.Accept(ctx, a)
		}
		return d
	}
}

func (m *model) answer(d decided) {
	i := m.find(d.id)
	if i >= 0 {
		m.items[i].deciding = false
	}
	switch {
	case d.err != nil:
		m.message = d.err.Error()
	case i < 0:
	case d.result.Status == editor.StatusConflict:
		m.items[i].conflict = &d.result
		m.message = d.result.Message
	case d.result.Status == editor.StatusRefused:
		m.message = d.result.Message
	}
}

// set replaces the diff's text.
func (m *model) set(it *item, text string) {
	it.text = text
	it.layOut()
	m.texts.edit(it.ID, text)
	m.show()
}

// acts reports whether a key decides on the change, edits it, or leaves.
func acts(key string) bool {
	return slices.Contains([]string{"y", "c", "r", "x", "o", "u", "a", "e", "q"}, key)
}

// edits reports whether a key changes the text.
func edits(key string) bool { return key == "u" || key == "a" || key == "e" }

// mayLeave reports whether the diff in view needs no decision, in a program that does
// not end automatically.
func (m *model) mayLeave(it *item) bool { return it.State == editor.StateAccepted && !m.cfg.Once }

func (m *model) key(key string, repeated bool) tea.Cmd {
	it := m.item()
	switch {
	case key == "ctrl+c":
		return m.leave()
	case m.leaving:
		if !m.settled || repeated {
			return nil
		}
		return tea.Quit
	case m.help:
		m.help = m.scrollHelp(key)
		return nil
	case acts(key) && (repeated || it != nil && !m.settled && !m.mayLeave(it) || it == nil && m.cfg.Once):
		return nil
	}
	m.message = ""
	if !m.cfg.Once {
		m.notes = nil // the user has seen them
	}
	switch key {
	case "q":
		return m.leave()
	case "?":
		m.help, m.helpTop = true, 0
		return nil
	}
	if key == "o" && (it == nil || it.conflict == nil) {
		return m.openOutside()
	}
	if it == nil {
		return nil
	}
	if c := it.conflict; c != nil && (m.settled || key == "d" || key == "esc") { // these two decide nothing
		it.conflict = nil
		switch key {
		case "o":
			return m.decide(it, true, c.Version)
		case "d":
			it.Original, it.Exists = c.Disk, !c.Deleted
			it.layOut()
			m.message = "compared with the file as it is now"
			m.show()
		}
		return nil
	}
	if acts(key) && it.State == editor.StateAccepted {
		return nil
	}
	if it.ReadOnly != "" && edits(key) {
		m.message = it.ReadOnly
		return nil
	}
	switch key {
	case "y", "c", "r", "x":
		return m.decide(it, key == "y" || key == "c", "")
	case "n":
		it.at = min(it.at+1, max(0, len(it.changes)-1))
		m.show()
	case "p":
		it.at = max(it.at-1, 0)
		m.show()
	case "V":
		it.ranging, it.first = !it.ranging && len(it.changes) > 0 && it.ReadOnly == "", it.at
	case "esc":
		it.ranging = false
	case "u", "a":
		if it.ranging {
			m.takeRange(it, key == "u")
		} else {
			m.take(it, key == "u")
		}
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
	case "w":
		m.wrap = !m.wrap
		m.show()
	case "l", "right":
		it.left += sideways
	case "h", "left":
		it.left -= sideways
	default:
		by, _ := scrolling(key, m.body()-1)
		it.top += by
	}
	m.clamp(it)
	return nil
}

// far is more lines than any text has.
const far = 1 << 30

// scrolling returns by how many lines a key scrolls, and whether it scrolls. page is how many
// lines a screen has.
func scrolling(key string, page int) (by int, scrolls bool) {
	switch key {
	case "j", "down":
		return 1, true
	case "k", "up":
		return -1, true
	case "space", "pgdown", "f", "ctrl+f", "ctrl+d":
		return page, true
	case "pgup", "b", "ctrl+b", "ctrl+u":
		return -page, true
	case "g", "home":
		return -far, true
	case "G", "end":
		return far, true
	}
	return 0, false
}

// openOutside asks for the oldest change outside Pollux that is not on the screen.
func (m *model) openOutside() tea.Cmd {
	for _, f := range m.outside.Files {
		if f.Notice != "" || slices.ContainsFunc(m.items, func(it *item) bool {
			return it.State == editor.StateOutside && it.Path == f.Path
		}) {
			continue
		}
		return func() tea.Msg {
			ctx, cancel := context.WithTimeout(m.ctx, answerTimeout)
			defer cancel()
			if err := m.client.OpenOutside(ctx, f.Path); err != nil {
				return failed{err}
			}
			return nil
		}
	}
	m.message = "no more changes outside Pollux"
	return nil
}

// leave ends the program because the user asked.
func (m *model) leave() tea.Cmd {
	m.left = slices.ContainsFunc(m.items, func(it *item) bool {
		return it.State == editor.StateOpen || it.State == editor.StateOrphaned
	})
	return tea.Quit
}

// take undoes or redoes the current change.
func (m *model) take(it *item, undo bool) {
	if len(it.changes) == 0 {
		m.message = "no hunks"
		return
	}
	c := it.changes[it.at]
	switch {
	case undo && c.undone:
		m.message = "already undone: a redoes it"
		return
	case undo:
		m.set(it, c.Replace(it.Original, it.text))
		return
	case c.undone:
		m.set(it, c.Replace(it.Proposed, it.text))
		return
	}
	// Restore a change that the user has edited.
	text := restored(it.Proposed, it.text, []change{c})
	if text == it.text {
		m.message = "already as proposed: u undoes it"
		return
	}
	m.set(it, text)
}

// takeRange undoes or redoes the changes of the range, and ends the range.
func (m *model) takeRange(it *item, undo bool) {
	from, to := it.selection()
	source, done := it.Proposed, "already as proposed: u undoes them"
	if undo {
		source, done = it.Original, "already undone: a redoes them"
	}
	text := restored(source, it.text, it.changes[from:to+1])
	it.at, it.ranging = from, false
	if text == it.text {
		m.message = done
		m.show()
		return
	}
	m.set(it, text)
}

// restored returns the text with the source's lines where the changes are.
func restored(source, text string, changes []change) string {
	for _, h := range slices.Backward(hunk.Between(source, text)) {
		if slices.ContainsFunc(changes, func(c change) bool {
			return h.New < c.New+max(c.NewLines, 1) && c.New < h.New+max(h.NewLines, 1)
		}) {
			text = h.Replace(source, text)
		}
	}
	return text
}

// edit opens the text in the user's editor, at the current change.
func (m *model) edit(it *item) tea.Cmd {
	dir, err := disk.MkdirTemp("", "pollux-edit-")
	if err != nil {
		m.message = err.Error()
		return nil
	}
	path := filepath.Join(dir, filepath.Base(it.Path))
	if err := os.WriteFile(path, []byte(it.text), 0o600); err != nil {
		m.message = err.Error()
		return nil
	}
	id, before := it.ID, it.text
	line := 1
	if it.at < len(it.changes) {
		line = it.changes[it.at].New
	}
	cmd, err := shell.LineCommand(m.ctx, m.cfg.Editor, shell.EditArgs(m.cfg.Editor, path, line)...)
	if err != nil {
		m.message = "the editor cannot start: " + err.Error()
		return nil
	}
	shell.LetSave(cmd)
	// This runs when the editor has ended, before the loop handles the messages that
	// arrived in the meantime. The loop may handle the first of them before edited.
	return tea.Exec(command{cmd}, func(err error) tea.Msg {
		data, readErr := os.ReadFile(path)
		text := string(data)
		if before != "" && !strings.HasSuffix(before, "\n") {
			text = strings.TrimSuffix(text, "\n") // editors end the last line
		}
		failed := errors.Join(err, readErr)
		switch {
		case failed != nil:
			m.texts.keep(path)
			return edited{problem: fmt.Sprintf("the editor failed (%v); the text is in %s", failed, path)}
		case text != before && !m.sendText(id, text):
			m.texts.keep(path)
			return edited{problem: "the change was decided or edited elsewhere, or its companion ended: your text is in " + path}
		}
		os.RemoveAll(dir)
		return edited{id: id}
	})
}

// sendText sends the companion a text, and reports whether the diff has it now. The companion may have
// ended, and drops the edit of an accepted diff.
func (m *model) sendText(id, text string) bool {
	if !m.texts.edit(id, text) {
		return false
	}
	ctx, cancel := context.WithTimeout(m.ctx, answerTimeout)
	defer cancel()
	m.texts.flush(ctx)
	diffs, err := m.client.Diffs(ctx) // answered after the edit
	return err == nil && slices.ContainsFunc(diffs, func(d editor.Diff) bool { return d.ID == id && d.Text() == text })
}

func (m *model) edited(msg edited) {
	if msg.problem != "" {
		m.message = msg.problem
		return
	}
	if i := m.find(msg.id); i >= 0 && m.follow(m.items[i]) {
		m.show()
	}
}

// follow takes over the latest text of a diff, and reports whether it is another one.
// Messages about a diff may be older: they wait while the user's editor runs.
func (m *model) follow(it *item) bool {
	text, mine, pending := m.texts.get(it.ID)
	if !pending || text == it.text {
		return false
	}
	it.text = text
	if !mine {
		it.version++
	}
	it.layOut()
	return true
}

// wide is how many columns a terminal needs for texts side by side.
const wide = 120

func (m *model) sideBySide() bool {
	if m.split != nil {
		return *m.split
	}
	return m.width >= wide
}

// list returns how many lines the list of diffs has.
func (m *model) list() int {
	if len(m.items) < 2 {
		return 0
	}
	return min(len(m.listed()), max(2, m.height/5))
}

// body returns how many lines the diff has.
func (m *model) body() int { return max(1, m.height-2-len(m.messageLines())-m.list()) }

// show scrolls to the current change.
func (m *model) show() {
	it := m.item()
	if it == nil {
		return
	}
	first, last := -1, -1
	for i, l := range m.lines(it) {
		if len(it.changes) > 0 && l.hunk() == it.at {
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

// sideways is how many columns a key shifts the texts.
const sideways = 16

func (m *model) clamp(it *item) {
	least := 0
	for _, r := range it.rows {
		least = min(least, -r.from)
	}
	it.left = max(it.left, least)
	it.top = max(0, min(it.top, len(m.lines(it))-m.body()))
}
