package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
	"pollux/internal/view/web"
)

// A stage is the review page in Chromium, connected to a companion that the
// test plays. The page's clock advances only when the test moves it.
type stage struct {
	t    *testing.T
	ctx  context.Context // the tab
	port int

	mu     sync.Mutex
	pages  *web.Server
	diffs  []editor.Diff
	conn   *jsonrpc.Conn // the page's connection
	down   bool          // the companion refuses connections
	said   []string      // the page's requests in order, such as "diff/accept b"
	texts  map[string]string
	roots  []string                                      // the workspace's directories
	answer func(method, id string) any                   // replaces the companion's answers if not nil; returns nil to leave a request unanswered
	gate   func(http.ResponseWriter, *http.Request) bool // reports whether it handled a request
	asked  chan struct{}                                 // after each request
}

// clock replaces the page's clock and its visibility. run makes the clock advance by a
// number of milliseconds each time the page reads it. expire ends the timeout of a
// request.
const clock = `{
  let now = 1000, step = 0, hidden = false;
  performance.now = () => (now += step) - step;
  Object.defineProperty(Event.prototype, "timeStamp", { get: () => now });
  Object.defineProperty(document, "hidden", { get: () => hidden });
  window.pass = (ms) => { now += ms; return now; };
  window.run = (ms) => { step = ms; };
  window.hide = (h) => { hidden = h; document.dispatchEvent(new Event("visibilitychange")); };
  const after = window.setTimeout, limits = new Map();
  window.setTimeout = (f, ms, ...args) => {
    const id = after(ms === 15000 ? () => {} : f, ms, ...args);
    if (ms === 15000) limits.set(id, f);
    return id;
  };
  const clear = window.clearTimeout;
  window.clearTimeout = (id) => { limits.delete(id); clear(id); };
  window.expire = () => { for (const f of limits.values()) f(); limits.clear(); };
  window.frames3 = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))));
}`

// unconnected is the companion's text for views while no agent is connected.
const unconnected = "Qwen Code has not connected yet; type /ide enable in it"

func newStage(t *testing.T, diffs ...editor.Diff) *stage {
	t.Helper()
	t.Parallel()
	s := &stage{t: t, diffs: diffs, texts: make(map[string]string), asked: make(chan struct{}, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		pages, gate := s.pages, s.gate
		s.mu.Unlock()
		if gate == nil || !gate(w, r) {
			pages.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.ctx = browser(t) // which ends before the server
	s.port = server.Listener.Addr().(*net.TCPAddr).Port
	s.restart()
	t.Cleanup(func() { s.cut() })
	firstRuns(t, s.ctx, clock)
	onPage(t, s.ctx, chromedp.Navigate(s.pages.Link()))
	return s
}

func change(name string) editor.Diff {
	return editor.Diff{
		ID: name, Path: "/project/" + name + ".txt", State: editor.StateOpen, Exists: true,
		Original: "one\n", Proposed: "one\n" + name + "\n", Client: "CLI 1", Opened: 1,
	}
}

// attach serves the page's connection.
func (s *stage) attach(stream io.ReadWriteCloser) {
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		stream.Close()
		return
	}
	// Answer one request after the other, as a companion does.
	queue := make(chan *jsonrpc.Request, 1000)
	s.conn = jsonrpc.NewConn(context.Background(), editor.NewStream(stream),
		func(_ *jsonrpc.Conn, req *jsonrpc.Request) { queue <- req })
	conn := s.conn
	s.mu.Unlock()
	for {
		select {
		case <-conn.DisconnectNotify():
			return
		case req := <-queue:
			s.serve(conn, req)
		}
	}
}

func (s *stage) serve(conn *jsonrpc.Conn, req *jsonrpc.Request) {
	var p editor.DiffAccept
	json.Unmarshal(req.Params, &p)
	s.mu.Lock()
	var result any = struct{}{}
	var after []func()
	switch req.Method {
	case editor.MethodInitialize:
		after = append(after, func() {
			conn.Notify(editor.MethodClients, editor.Clients{Clients: []editor.Agent{{Name: "CLI", Version: "1", Label: "CLI 1"}}})
		})
		for _, d := range s.diffs {
			after = append(after, func() { conn.Start(editor.MethodDiffOpen, d) })
		}
	case editor.MethodStatus:
		result = editor.Status{Roots: s.roots, Journal: true, Unconnected: unconnected}
	case editor.MethodDiffList:
		result = editor.DiffList{Diffs: append([]editor.Diff{}, s.diffs...)}
	case editor.MethodDiffAccept, editor.MethodDiffReject, editor.MethodDiffSave, editor.MethodDiffEdit:
		said := strings.TrimSpace(fmt.Sprint(strings.TrimPrefix(req.Method, "diff/"), " ", p.ID, " ", p.Overwrite))
		if req.Method != editor.MethodDiffEdit {
			s.said = append(s.said, said)
		}
		if req.Method != editor.MethodDiffReject {
			s.texts[p.ID] = p.Content
			for i := range s.diffs {
				if s.diffs[i].ID == p.ID {
					s.diffs[i].Content = &p.Content
				}
			}
		}
		if s.answer != nil {
			result = s.answer(req.Method, p.ID)
		} else if reason := map[string]string{
			editor.MethodDiffAccept: editor.ReasonAccepted, editor.MethodDiffReject: editor.ReasonRejected, editor.MethodDiffSave: editor.ReasonSaved,
		}[req.Method]; reason != "" {
			result = editor.DiffAcceptResult{Status: editor.StatusAccepted}
			s.diffs = slices.DeleteFunc(s.diffs, func(d editor.Diff) bool { return d.ID == p.ID })
			after = append(after, func() { conn.Start(editor.MethodDiffClose, editor.DiffClose{ID: p.ID, Reason: reason}) })
		}
	}
	s.mu.Unlock()
	if !req.Notif && result != nil {
		conn.Reply(req.ID, result)
	}
	for _, f := range after {
		f()
	}
	s.asked <- struct{}{}
}

// tell sends the page a request, or a notification if it needs no answer.
func (s *stage) tell(method string, params any) {
	s.t.Helper()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	var err error
	if method == editor.MethodDiffOpen || method == editor.MethodDiffClose {
		err = conn.Call(s.ctx, method, params, nil)
	} else {
		err = conn.Notify(method, params)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// cut closes the page's connection and refuses new ones until up is called.
func (s *stage) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	if s.conn != nil {
		s.conn.Close()
	}
}

func (s *stage) up(diffs ...editor.Diff) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.diffs = false, diffs
}

// restart starts a new companion at the same address and returns a link to its
// page.
func (s *stage) restart() string {
	pages := web.New(s.attach, s.port)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = pages
	return pages.Link()
}

// guard sets a function that sees the page's requests first, or none if nil.
func (s *stage) guard(gate func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = gate
}

// posts reports whether a request of the page is a POST that contains a method
// of the protocol. The request can still be served.
func posts(r *http.Request, method string) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var m struct{ Method string }
	json.Unmarshal(body, &m)
	return m.Method == method
}

// script sets how the companion answers decisions. With nil it answers as a
// real companion does.
func (s *stage) script(answer func(method, id string) any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// text returns the last text of a diff that the page sent.
func (s *stage) text(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[id]
}

func (s *stage) page(actions ...chromedp.Action[chromedp.Void]) {
	s.t.Helper()
	onPage(s.t, s.ctx, actions...)
}

// pass advances the page's clock, after the view has been painted.
func (s *stage) pass(ms int) {
	s.t.Helper()
	s.page(chromedp.Evaluate[chromedp.Void]("frames3()", chromedp.EvalAwaitPromise), chromedp.Evaluate[chromedp.Void](fmt.Sprintf("pass(%d)", ms)))
}

// settle advances the clock until the page allows a decision.
func (s *stage) settle() {
	s.t.Helper()
	s.page(isTrue(`pass(100) && document.querySelector("#accept").getAttribute("aria-disabled") !== "true"`))
}

// press sends the press and release of a mouse click, the n-th of several.
func (s *stage) press(selector string, n int) {
	s.t.Helper()
	s.mouse(selector, n, chromedp.MousePressed)
	s.mouse(selector, n, chromedp.MouseReleased)
}

func (s *stage) mouse(selector string, n int, typ input.DispatchMouseEventType) {
	s.t.Helper()
	at, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]float64](`(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector(`+quote(selector)+`).getBoundingClientRect())`))
	if err != nil {
		s.t.Fatal(err)
	}
	s.page(chromedp.MouseEvent(typ, at[0], at[1], chromedp.ButtonLeft, chromedp.ClickCount(n)))
}

// ctrlEnter is the key that accepts. ctrlEnterHeld is the event that a keyboard
// repeats while the key is held.
func (s *stage) ctrlEnter() {
	s.t.Helper()
	s.page(chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(kb.ModifierCtrl)))
}

func (s *stage) ctrlEnterDown(repeat bool) {
	s.t.Helper()
	if _, err := chromedp.Run(s.ctx, func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, t, input.DispatchKeyEvent, input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeRawKeyDown, Code: "Enter", Key: "Enter", WindowsVirtualKeyCode: 13, Modifiers: 2, AutoRepeat: &repeat,
		})
	}); err != nil {
		s.t.Fatal(err)
	}
}

// wantSaid waits until the page has sent the last request of want, and compares
// all requests.
func (s *stage) wantSaid(want ...string) {
	s.t.Helper()
	for {
		s.mu.Lock()
		said := slices.Clone(s.said)
		s.mu.Unlock()
		if len(said) >= len(want) {
			if !slices.Equal(said, want) {
				s.t.Fatalf("the page decided %q, want %q", said, want)
			}
			return
		}
		next(s.t, "decision of the page", s.asked)
	}
}
