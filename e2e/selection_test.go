package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/coder/websocket"

	"pollux/editors/editortest"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/systest"
)

// An ideClient is connected to a companion as Claude Code is, whose protocol says where
// a selection is.
type ideClient struct {
	*world
	ws *websocket.Conn
}

// useClaude makes a home in which companions publish themselves to Claude Code.
func (w *world) useClaude() {
	w.t.Helper()
	systest.MakeDir(w.t, filepath.Join(w.home, ".claude"))
}

// dialIDE connects to the companion; see useClaude.
func (w *world) dialIDE() *ideClient {
	w.t.Helper()
	var locks []claudeide.Found
	waitFor(w.t, "a lock file", func() bool {
		locks = claudeide.Find(filepath.Join(w.home, ".claude", "ide"))
		return len(locks) == 1
	})
	ws, _, err := websocket.Dial(w.context(), fmt.Sprintf("ws://127.0.0.1:%d", locks[0].Port), &websocket.DialOptions{
		Subprotocols: []string{"mcp"},
		HTTPHeader:   http.Header{"X-Claude-Code-Ide-Authorization": {locks[0].AuthToken}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ws.CloseNow() })
	c := &ideClient{w, ws}
	c.write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":
		{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	c.read()
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *ideClient) write(message string) {
	c.t.Helper()
	if err := c.ws.Write(c.context(), websocket.MessageText, []byte(message)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *ideClient) read() []byte {
	c.t.Helper()
	_, data, err := c.ws.Read(c.context())
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

// A selected is a selection in a file as an agent receives it: the text, and where it is,
// such as "0:4-1:0". Lines and characters count from 0.
type selected struct{ path, text, where string }

// selects waits for a selection that fits.
func (c *ideClient) selects(what string, fits func(selected) bool) {
	c.t.Helper()
	var got selected
	for {
		_, data, err := c.ws.Read(c.context())
		if err != nil {
			c.t.Fatalf("received %+v, never %s (%v)", got, what, err)
		}
		var m struct {
			Method string
			Params struct {
				FilePath, Text string
				Selection      struct{ Start, End struct{ Line, Character int } }
			}
		}
		if err := json.Unmarshal(data, &m); err != nil || m.Method != "selection_changed" {
			continue
		}
		at := m.Params.Selection
		got = selected{m.Params.FilePath, m.Params.Text,
			fmt.Sprintf("%d:%d-%d:%d", at.Start.Line, at.Start.Character, at.End.Line, at.End.Character)}
		if fits(got) {
			return
		}
	}
}

func (c *ideClient) wantSelected(path, text, where string) {
	c.t.Helper()
	want := selected{path, text, where}
	c.selects(fmt.Sprintf("%+v", want), func(s selected) bool { return s == want })
}

// wantMentioned waits for a mention of lines, which count from 0.
func (c *ideClient) wantMentioned(path string, first, last int) {
	c.t.Helper()
	for {
		var m struct {
			Method string
			Params struct {
				FilePath           string
				LineStart, LineEnd int
			}
		}
		if err := json.Unmarshal(c.read(), &m); err != nil {
			c.t.Fatal(err)
		}
		if m.Method != "at_mentioned" {
			continue
		}
		if p := m.Params; p.FilePath != path || p.LineStart != first || p.LineEnd != last {
			c.t.Errorf("mentioned %+v, want %s, %d-%d", p, path, first, last)
		}
		return
	}
}

// A choice is a selection: the keys that make it, its text, and where it is.
type choice struct {
	keys        []string
	text, where string
}

var vimChoices = []choice{
	{[]string{"gg0ve"}, "one", "0:0-0:3"},
	{[]string{"gg$vb"}, "two", "0:7-0:10"}, // from right to left
	{[]string{"gg0fevll"}, "e \U0001F600", "0:2-0:6"},
	{[]string{"gg0wv$"}, "\U0001F600 two\n", "0:4-1:0"},
	{[]string{"2G0wve"}, "three", "1:1-1:6"}, // after a tab
	{[]string{"ggVj"}, "one \U0001F600 two\n\tthree \U0001F600!", "0:0-1:10"},
	{[]string{"2GVk"}, "one \U0001F600 two\n\tthree \U0001F600!", "0:0-1:10"},
	{[]string{"3G0l", "C-v", "jl"}, "bc\nhi", "2:1-3:3"},
	{[]string{"4G0l", "C-v", "kl"}, "bc\nhi", "2:1-3:3"},
	{[]string{"3G0l", "C-v", "j$"}, "bcdef\nhijkl", "2:1-3:6"},
	{[]string{"G0v$"}, "ghijkl", "3:0-3:6"}, // no line ending after it
}

var emacsChoices = []choice{
	{[]string{"M-<", "C-Space", "M-f"}, "one", "0:0-0:3"},
	{[]string{"M-<", "C-e", "C-Space", "M-b"}, "two", "0:7-0:10"},
	{[]string{"M-<", "C-f", "C-f", "C-Space", "C-f", "C-f", "C-f"}, "e \U0001F600", "0:2-0:6"},
	{[]string{"M-<", "C-Space", "C-n"}, "one \U0001F600 two\n", "0:0-1:0"},
	{[]string{"M-<", "C-n", "M-m", "C-Space", "M-f"}, "three", "1:1-1:6"},
	{[]string{"M-<", "C-n", "C-n", "C-f", "C-x", "Space", "C-n", "C-f", "C-f"}, "bc\nhi", "2:1-3:3"},
	{[]string{"M-<", "C-n", "C-n", "C-n", "C-f", "C-x", "Space", "C-p", "C-f", "C-f"}, "bc\nhi", "2:1-3:3"},
}

// Agents receive where a selection is, for every way to select.
func TestEditorSelections(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, _ hands) {
		w := newWorld(t, silent)
		w.useClaude()
		path := w.file("a.txt", "one \U0001F600 two\n\tthree \U0001F600!\nabcdef\nghijkl\n")
		d := w.sit(kind, path)
		c := w.dialIDE()
		choices := vimChoices
		if kind.Name == "emacs" {
			choices = emacsChoices
		}
		for _, choice := range choices {
			t.Logf("%q", choice.keys)
			d.press(choice.keys...)
			c.wantSelected(path, choice.text, choice.where)
			if kind.Name == "emacs" {
				d.press("C-Space", "C-Space") // a C-g may stop something else
			} else {
				d.press("Escape")
				d.until("mode()", "n")
			}
			c.selects("nothing", func(s selected) bool { return s.text == "" })
		}
	})
}
