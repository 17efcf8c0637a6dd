package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/editors/editortest"
	"pollux/internal/editor"
	"pollux/internal/ide/copilotide"
	"pollux/internal/sys/systest"
)

// A copilotClient is the side of Copilot CLI's protocol that the agent is on. The tests
// of the views use it, since the agent itself takes long to start.
type copilotClient struct {
	w       *world
	http    *http.Client
	auth    string
	session string
	number  int
}

// usesCopilot makes companions write Copilot CLI's lock.
func (w *world) usesCopilot() {
	w.t.Helper()
	systest.MakeDir(w.t, filepath.Join(w.home, ".copilot"))
}

// copilotClient connects to the only companion.
func (w *world) copilotClient() *copilotClient {
	w.t.Helper()
	var found []copilotide.Found
	waitFor(w.t, "the lock", func() bool {
		found = copilotide.Find(filepath.Join(w.home, ".copilot", "ide"))
		return len(found) == 1
	})
	lock := found[0]
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", lock.SocketPath)
	}
	c := &copilotClient{w: w, http: &http.Client{Transport: &http.Transport{DialContext: dial}}, auth: lock.Headers["Authorization"]}
	res := c.send(w.t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":`+
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"copilot-cli","version":"test"}}}`)
	c.session = res.Header.Get("Mcp-Session-Id")
	c.read(res)
	c.send(w.t.Context(), http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).Body.Close()
	ctx, cancel := context.WithCancel(context.Background())
	stream := c.send(ctx, http.MethodGet, "")
	w.t.Cleanup(func() { cancel(); stream.Body.Close() })
	return c
}

func (c *copilotClient) send(ctx context.Context, method, body string) *http.Response {
	c.w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/mcp", strings.NewReader(body))
	if err != nil {
		c.w.t.Fatal(err)
	}
	r.Header.Set("Authorization", c.auth)
	r.Header.Set("Mcp-Session-Id", c.session)
	if c.session == "" {
		r.Header.Del("Mcp-Session-Id")
	}
	res, err := c.http.Do(r)
	if err != nil {
		c.w.t.Fatal(err)
	}
	return res
}

// read returns the message in a response.
func (c *copilotClient) read(res *http.Response) string {
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	return ""
}

// openDiff proposes a text. The result receives the answer.
func (c *copilotClient) openDiff(path, text string) <-chan string {
	c.w.t.Helper()
	c.number++
	args, err := json.Marshal(map[string]string{"original_file_path": path, "new_file_contents": text, "tab_name": "tab"})
	if err != nil {
		c.w.t.Fatal(err)
	}
	res := c.send(c.w.t.Context(), http.MethodPost, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"open_diff","arguments":%s}}`, c.number, args))
	answer := make(chan string, 1)
	go func() { answer <- c.read(res) }()
	return answer
}

// saved waits until the agent may write its text.
func saved(t *testing.T, answer <-chan string) {
	t.Helper()
	if got := next(t, "answer", answer); !strings.Contains(got, "accepted_via_button") {
		t.Errorf("the answer is %s", got)
	}
}

const reason = "Copilot CLI ignores edits"

// The agent ignores edits, so the editor allows none, and says why.
func TestEditorReadOnly(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		w.usesCopilot()
		path := w.file("a.txt", "one\n")
		d := w.sit(kind, path)
		c := w.copilotClient()
		answer := c.openDiff(path, "one\ntwo\n")
		d.shows(path)
		d.see("read-only")
		d.enter()
		if kind.Name == "emacs" {
			d.press("x")
			d.see("Buffer is read-only") // until then Emacs drops the keys that follow
		} else {
			d.press(h.edit...)
		}
		d.command("undo-hunk") // Vim takes the keys for a part of the Escape
		d.see(reason)
		d.holds(d.State.Proposal, "one\ntwo\n")
		d.press(h.accepts[len(h.accepts)-1]...)
		saved(t, answer)
	})
}

// Vim protects what it opens from changes, but not a proposal: the view of it could not be
// opened or written.
func TestVimProtectsFiles(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		for flag, accept := range map[string][]string{"-R": {":w", "Enter"}, "-M": {":Pollux accept", "Enter"}} {
			t.Run(flag, func(t *testing.T) {
				w := newWorld(t, silent)
				path := w.file("a.txt", "one\n")
				d := w.sit(kind, flag, path)
				c := d.cli()
				d.review(c, path, "one\ntwo\n")
				d.enter()
				d.press(vimHands.edit...)
				d.press(accept...)
				wantSaved(t, c, path, "mine\none\ntwo\n")
				d.holds(d.State.Buffer("a.txt"), "mine\none\ntwo\n")
				d.until("getbufvar('a.txt', '&readonly') .. getbufvar('a.txt', '&modifiable')", map[string]string{"-R": "11", "-M": "00"}[flag])
			})
		}
	})
}

func TestReviewReadOnly(t *testing.T) {
	w := newWorld(t, silent)
	w.usesCopilot()
	path := w.file("a.txt", "one\n")
	s := w.review(100, 24)
	answer := w.copilotClient().openDiff(path, "one\ntwo\n")
	s.see("(read-only)")
	for _, key := range []string{"u", "a", "e"} {
		s.keys(key)
		s.see(reason)
		s.keys("n") // clears the message
		waitFor(t, "the message to end", func() bool { return !strings.Contains(s.Text(), reason) })
	}
	s.see("+two")
	s.keys("y")
	saved(t, answer)
}

func TestPageReadOnly(t *testing.T) {
	w := newWorld(t, silent)
	w.usesCopilot()
	path := w.file("a.txt", "one\n")
	e := w.edit(func(p *editor.InitializeParams) { p.Diff = false; p.Settings.ReviewPage = true })
	ctx := browser(t)
	onPage(t, ctx, chromedp.Navigate(e.link(ctx)), shows("#none", "No agent is connected"))
	answer := w.copilotClient().openDiff(path, "one\ntwo\n")
	onPage(t, ctx, shows("#path", "a.txt"), shows("#fixed", reason), settled)
	for _, unified := range []bool{false, true} {
		if unified {
			onPage(t, ctx, chromedp.Click("#mode"), chromedp.WaitVisible(".cm-insertedLine, .cm-changedLine"))
		}
		onPage(t, ctx, chromedp.Focus(".cm-merge-b .cm-content, #view > .cm-editor .cm-content"), chromedp.SendKeys(
			".cm-merge-b .cm-content, #view > .cm-editor .cm-content", "mine"))
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("#view").innerText`))
		if err != nil || strings.Contains(text, "mine") {
			t.Errorf("%v; the page shows %q", err, text)
		}
		for _, selector := range []string{"#reset:not([hidden])", "button.revert", ".cm-chunkButtons button"} {
			n, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.querySelectorAll(`+quote(selector)+`).length`))
			if err != nil || n != 0 {
				t.Errorf("%d of %s, %v", n, selector, err)
			}
		}
	}
	onPage(t, ctx, settled, chromedp.Click("#accept"))
	saved(t, answer)
}
