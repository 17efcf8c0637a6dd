package term

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// The terminal's own sixteen colours, which follow its theme. Bubble Tea removes them
// for terminals without colours; signs carry the same information.
const (
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	cyan    = "\x1b[36m"
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

// helpText is the help: keys with what they do, or a text without keys.
var helpText = []struct{ keys, text string }{
	{"y", "accept: the agent writes the file with the text shown here"},
	{"r", "reject"},
	{"n, p", "next hunk, previous hunk"},
	{"u", "undo the hunk (the text on disk): rejects this hunk only"},
	{"a", "redo the hunk (the proposed text)"},
	{"V", "start a range at this hunk: n and p extend it, u and a change it"},
	{"e", "edit the text in $EDITOR"},
	{"Tab", "next pending change"},
	{"o", "next change outside Pollux: y saves the text shown here, r keeps the file"},
	{"v, w", "side by side or one below the other; wrap or cut long lines"},
	{"j, k", "scroll; Space and b by a screen, g and G to the ends, h and l sideways"},
	{"q", "leave without a decision"},
	{},
	{text: "You can decide on a change that has just appeared after half a second without " +
		"a key press; until then y, r, u, a, e and q do nothing."},
	{},
	{"+, -", "added, removed"},
	{"~", "proposed, but undone by you"},
	{"*", "your edit"},
}

// helpLines returns the part of the help that is on the screen.
func (m *model) helpLines() []string {
	all := m.allHelp()
	room := m.helpRoom()
	m.helpTop = max(0, min(m.helpTop, len(all)-room))
	lines := slices.Clone(all[m.helpTop:min(len(all), m.helpTop+room)])
	for len(lines) < room {
		lines = append(lines, "")
	}
	footer := "Press any key to continue."
	if len(all) > room {
		footer = "j/k scroll  any other key continues"
	}
	return append(lines, faint+" "+footer+plain)
}

// helpRoom returns how many lines of the help the screen has room for.
func (m *model) helpRoom() int { return max(1, m.height-1) }

// allHelp returns the lines of the help, wrapped.
func (m *model) allHelp() (lines []string) {
	indent := 12
	if m.width < 60 {
		indent = 7
	}
	for _, h := range helpText {
		keys, in := " ", 1
		if h.keys != "" {
			keys, in = pad(" "+h.keys, indent), indent
		}
		for _, line := range strings.Split(ansi.Wrap(h.text, max(10, m.width-in-1), ""), "\n") {
			lines = append(lines, strings.TrimRight(keys+line, " "))
			keys = strings.Repeat(" ", in)
		}
	}
	return lines
}

// scrollHelp scrolls the help if it does not fit on the screen and the key scrolls, and reports
// whether it did.
func (m *model) scrollHelp(key string) bool {
	room := m.helpRoom()
	if len(m.allHelp()) <= room {
		return false
	}
	by, scrolls := scrolling(key, room-1)
	m.helpTop += by
	return scrolls
}

func (m *model) emptyLines() []string {
	lines := []string{"", " No pending changes.", ""}
	var notes []string
	reviewed := func(a editor.Agent) bool { return a.Limits == "" }
	switch {
	case len(m.agents) == 0 && m.unconnected != "":
		notes = append(notes, m.unconnected)
	case len(m.agents) == 0:
		notes = append(notes, "No agent is connected. In Gemini CLI, type /ide enable and restart it; in Claude Code and Codex CLI, type /ide.")
	case slices.ContainsFunc(m.agents, reviewed):
		notes = append(notes, "Changes that an agent proposes appear here.")
	}
	if m.leaving {
		notes = append(notes, m.notes...)
	} else {
		notes = slices.Concat(notes, m.limits(), m.silent(), []string{m.outside.Note("o")})
	}
	for _, note := range notes {
		note = termtext.Visible(strings.TrimSpace(note)) // none if it is empty
		for line := range strings.Lines(ansi.Wrap(note, max(20, m.width-2), "")) {
			lines = append(lines, " "+strings.TrimSuffix(line, "\n"))
		}
	}
	message := m.messageLines()
	room := m.height - 1 - len(message)
	if !m.leaving {
		list := m.outsideLines()
		lines = append(lines, list[:max(0, min(len(list), room-len(lines)))]...)
	}
	for len(lines) < room {
		lines = append(lines, "")
	}
	footer := "q leave"
	if len(m.outside.Files) > 0 {
		footer = "o changes outside Pollux  " + footer
	}
	if m.leaving {
		footer = "Read this first."
		if m.settled {
			footer = "any key ends"
		}
	}
	for _, l := range message {
		lines = append(lines, " "+l)
	}
	return append(lines, faint+" "+footer+plain)
}

// outsideLines returns the list of the files that changed outside Pollux.
func (m *model) outsideLines() (lines []string) {
	files := slices.Clone(m.outside.Files)
	slices.SortFunc(files, func(a, b editor.OutsideFile) int {
		return cmp.Or(strings.Compare(filepath.Dir(a.Path), filepath.Dir(b.Path)), strings.Compare(a.Path, b.Path))
	})
	for _, l := range m.byFolder(len(files), func(i int) string { return files[i].Path }) {
		rest := ""
		if l.file >= 0 {
			rest = "  " + files[l.file].Change
			if notice := files[l.file].Notice; notice != "" {
				rest += " (" + notice + ")"
			}
		}
		lines = append(lines, l.line("   ", rest, m.width))
	}
	return lines
}

// silent returns [editor.Agent.Silent] of the agents that do not ask.
func (m *model) silent() (all []string) {
	for _, a := range m.agents {
		if a.Silent != "" {
			all = append(all, a.Silent)
		}
	}
	return all
}

// limits says what agents cannot do, each once.
func (m *model) limits() (all []string) {
	for _, a := range m.agents {
		if text := a.Name + " has " + a.Limits + "."; a.Limits != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

func (m *model) diffLines() []string {
	it := m.item()
	var lines []string
	if n := m.list(); n > 0 {
		several := slices.ContainsFunc(m.items, func(other *item) bool { return other.AgentName() != it.AgentName() })
		rows := m.listed()
		at := slices.IndexFunc(rows, func(l listed) bool { return l.file == m.current })
		from := max(0, min(at-n/2, len(rows)-n))
		rows[from].inside = false // the line names the folder
		for _, l := range rows[from : from+n] {
			mark, rest := "  ", ""
			if l.file >= 0 {
				rest = m.items[l.file].state(several)
			}
			if l.file == m.current {
				mark = "> "
				if n < len(rows) {
					rest += fmt.Sprintf("   %d of %d", m.current+1, len(m.items))
				}
			}
			lines = append(lines, l.line(mark, rest, m.width))
		}
	}
	lines = append(lines, reverse+pad(" "+m.title(it, it.position(), m.width-1), m.width)+plain)
	body := m.lines(it)
	body = body[min(it.top, len(body)):]
	for i := range m.body() {
		if i < len(body) {
			lines = append(lines, m.draw(it, body[i]))
		} else {
			lines = append(lines, "")
		}
	}
	for _, l := range m.messageLines() {
		lines = append(lines, " "+l)
	}
	return append(lines, faint+" "+m.footer(it)+plain)
}

// position returns which hunks are selected.
func (it *item) position() string {
	from, to := it.selection()
	switch {
	case len(it.changes) == 0:
		return "   no difference"
	case it.ranging:
		return fmt.Sprintf("   hunks %d-%d of %d", from+1, to+1, len(it.changes))
	}
	return fmt.Sprintf("   hunk %d of %d", it.at+1, len(it.changes))
}

// relative returns a path without the workspace's directory. If there are several, it keeps
// their last part.
func (m *model) relative(path string) string {
	for _, root := range m.roots {
		if rel, ok := paths.Rel(root, path); ok && len(m.roots) > 1 {
			return filepath.Join(filepath.Base(root), rel)
		} else if ok {
			return rel
		}
	}
	return path
}

// title returns the line that names a change. It cuts the folder from the left if
// the line would be wider than width columns.
func (m *model) title(it *item, suffix string, width int) string {
	rest := it.state(true) + suffix
	name := termtext.Visible(filepath.Base(it.Path))
	dir := filepath.Dir(m.relative(it.Path))
	if dir == "." {
		return name + rest
	}
	return name + "  " + cutLeft(dir, width-ansi.StringWidth(name+"  "+rest)) + rest
}

// state returns what stands after a change's name, with the agent's name or without.
func (it *item) state(agent bool) (text string) {
	if agent {
		text = "  " + termtext.Visible(it.AgentName())
	}
	if !it.Exists {
		text += "  (new file)"
	}
	switch it.State {
	case editor.StateOrphaned:
		text += "  (the agent is disconnected)"
	case editor.StateAccepted:
		text += "  (accepted: waiting for the agent to write it)"
	}
	return text
}

// listed returns the rows of the list of diffs.
func (m *model) listed() []listed {
	return m.byFolder(len(m.items), func(i int) string { return m.items[i].Path })
}

// A sign stands before a row, in its colour.
type sign struct{ text, colour string }

var signs = map[kind]sign{
	same: {" ", ""}, removed: {"-", red}, added: {"+", green}, undone: {"~", yellow},
}

func (r *row) sign() sign {
	if r.yours {
		return sign{"*", cyan}
	}
	return signs[r.kind]
}

// maxMessage limits how many lines a message has.
const maxMessage = 4

// messageLines returns the message, wrapped. It has at least one line.
func (m *model) messageLines() []string {
	text := termtext.Visible(strings.TrimSpace(m.message))
	lines := strings.Split(ansi.Wrap(text, max(20, m.width-2), ""), "\n")
	return lines[:min(len(lines), maxMessage, max(1, m.height/4))]
}
