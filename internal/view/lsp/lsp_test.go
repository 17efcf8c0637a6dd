package lsp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
	"pollux/internal/paths"
	"pollux/internal/sys/systest"
)

// uriOf returns the URI of a file on this system, given its path on Unix.
func uriOf(path string) string { return paths.ToURL(systest.Abs(path)) }

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A desk is an editor's language client on one side of the server, and the
// companion's end of the editor protocol on the other.
type desk struct {
	t         *testing.T
	editor    *jsonrpc.Conn
	companion *jsonrpc.Conn

	mu     sync.Mutex
	said   []string                     // methods and texts that the editor got
	told   editor.Snapshot              // the last one that the companion received
	init   editor.InitializeParams      // how it was introduced
	calls  []string                     // the server's diff/... requests
	choose string                       // what the user chooses; "" for nothing, "?" for an editor that cannot ask
	accept []editor.DiffAcceptResult    // what the companion answers
	texts  map[string]editor.DiffAccept // the accepted ones
	asked  func(actions []action)       // before the user chooses
}

func (d *desk) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// A buffered connection accepts writes immediately, as a socket and the companion
// do.
type buffered struct {
	net.Conn
	mu     sync.Mutex
	closed bool
	out    chan []byte
}

func buffer(conn net.Conn) *buffered {
	b := &buffered{Conn: conn, out: make(chan []byte, 100)}
	go func() {
		for data := range b.out {
			conn.Write(data)
		}
	}()
	return b
}

func (b *buffered) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	b.out <- slices.Clone(data)
	return len(data), nil
}

func (b *buffered) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.out)
	}
	return b.Conn.Close()
}

func sit(t *testing.T) *desk {
	d := &desk{t: t, texts: make(map[string]editor.DiffAccept)}
	mine, theirs := net.Pipe()
	local, remote := net.Pipe()
	d.companion = jsonrpc.NewConn(t.Context(), editor.NewStream(buffer(remote)), jsonrpc.HandlerWithError(func(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch req.Method {
		case editor.MethodInitialize:
			return editor.InitializeResult{Protocol: 1}, json.Unmarshal(req.Params, &d.init)
		case editor.MethodContextUpdate:
			d.told = editor.Snapshot{}
			return nil, json.Unmarshal(req.Params, &d.told)
		case editor.MethodReviewLink:
			return editor.Link{URL: "http://127.0.0.1:1/review"}, nil
		case editor.MethodDiffAccept:
			var a editor.DiffAccept
			json.Unmarshal(req.Params, &a)
			d.texts[a.ID] = a
			res := editor.DiffAcceptResult{Status: editor.StatusAccepted}
			if len(d.accept) > 0 {
				res, d.accept = d.accept[0], d.accept[1:]
			}
			return res, nil
		case editor.MethodDiffReject:
			d.calls = append(d.calls, "reject")
			return struct{}{}, nil
		case editor.MethodDiffSave:
			d.calls = append(d.calls, "save")
			return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}
	}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		Serve(t.Context(), theirs, Config{Dial: func(h editor.Handler) *editor.Client { return editor.NewClient(local, h) }})
	}()
	d.editor = jsonrpc.NewConn(t.Context(), editor.NewStream(buffer(mine)), jsonrpc.HandlerWithError(func(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		var p struct {
			Message string
			URI     string
			Actions []action
		}
		json.Unmarshal(req.Params, &p)
		d.said = append(d.said, req.Method+" "+p.Message+p.URI)
		if d.asked != nil && len(p.Actions) > 0 {
			d.asked(p.Actions)
		}
		switch {
		case req.Method == "window/showDocument":
			return map[string]any{"success": true}, nil
		case d.choose == "?" && !req.Notif:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not here"}
		case slices.Contains(p.Actions, action{d.choose}):
			return action{d.choose}, nil
		}
		return nil, nil
	}))
	t.Cleanup(func() {
		d.editor.Close()
		<-served
		d.companion.Close()
		<-d.companion.DisconnectNotify()
	})
	return d
}

// onDesk runs a test at a desk, in a bubble.
func onDesk(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, sit(t)) })
}

// open proposes a change of x.go.
func (d *desk) open(id string) {
	d.t.Helper()
	diff := editor.Diff{ID: id, Path: systest.Abs("/home/a b/x.go"), State: editor.StateOpen, Proposed: "new\n", Agent: "Gemini CLI"}
	if err := d.companion.Call(d.t.Context(), editor.MethodDiffOpen, diff, nil); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) call(method string, params any) (result json.RawMessage) {
	d.t.Helper()
	if err := d.editor.Call(d.t.Context(), method, params, &result); err != nil {
		d.t.Fatalf("%s: %v", method, err)
	}
	return result
}

func (d *desk) initialize() {
	d.t.Helper()
	d.initializeAs("Sublime Text LSP")
}

func (d *desk) initializeAs(client string) {
	d.t.Helper()
	d.call("initialize", map[string]any{
		"processId": 42, "rootUri": uriOf("/home/a b"), "clientInfo": map[string]any{"name": client},
		"capabilities": map[string]any{"window": map[string]any{"showDocument": map[string]any{"support": true}}},
	})
}

func doc(more map[string]any) map[string]any {
	p := map[string]any{"textDocument": map[string]any{"uri": uriOf("/home/a b/x.go"), "text": "one \U0001F600 two\nthree\n"}}
	for k, v := range more {
		p[k] = v
	}
	return p
}

func at(line, char int) map[string]any { return map[string]any{"line": line, "character": char} }

func place(r *editor.Range) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%d:%d-%d:%d", r.Start.Line, r.Start.Character, r.End.Line, r.End.Character)
}

func TestContextFromRequests(t *testing.T) {
	onDesk(t, func(t *testing.T, d *desk) {
		d.initialize()
		d.do(func() {
			if d.init.PID != 42 || !slices.Equal(d.init.Roots, []string{systest.Abs("/home/a b")}) || d.init.Editor != (editor.Info{Name: "lsp-sublime-text-lsp", DisplayName: "Sublime Text LSP"}) {
				t.Errorf("introduced as %+v", d.init)
			}
		})
		d.editor.Notify("textDocument/didOpen", doc(nil))
		for _, test := range []struct {
			method    string
			params    map[string]any
			cursor    *editor.Cursor
			selection string
			where     string
		}{
			{"textDocument/hover", doc(map[string]any{"position": at(0, 7)}), &editor.Cursor{Line: 1, Character: 8}, "", ""},
			{"textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(0, 4), "end": at(1, 2)}}), &editor.Cursor{Line: 2, Character: 3}, "\U0001F600 two\nth", "1:5-2:3"},
			{"textDocument/documentHighlight", doc(map[string]any{"position": at(1, 0)}), &editor.Cursor{Line: 2, Character: 1}, "\U0001F600 two\nth", "1:5-2:3"},
			{"textDocument/hover", doc(map[string]any{"position": at(0, 0)}), &editor.Cursor{Line: 1, Character: 1}, "", ""},
			{"textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(0, 7), "end": at(0, 10)}}), &editor.Cursor{Line: 1, Character: 11}, "two", "1:8-1:11"},
			{"textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(1, 0), "end": at(1, 99)}}), &editor.Cursor{Line: 2, Character: 100}, "three", "2:1-2:6"},
			{"textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(1, 2), "end": at(1, 2)}}), &editor.Cursor{Line: 2, Character: 3}, "", ""},
			{"textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(0, 0), "end": at(1, 0)}}), &editor.Cursor{Line: 2, Character: 1}, "one \U0001F600 two\n", "1:1-2:1"},
		} {
			d.call(test.method, test.params)
			synctest.Wait()
			d.do(func() {
				f := d.told.Files[0]
				if f.Path != systest.Abs("/home/a b/x.go") || !f.Active || *f.Cursor != *test.cursor || f.Selection != test.selection || place(f.Range) != test.where {
					t.Errorf("after %s: reported %+v at %+v, %q", test.method, f, f.Cursor, place(f.Range))
				}
			})
		}
		// Typing: a change after the emoji, counted in UTF-16.
		d.editor.Notify("textDocument/didChange", doc(map[string]any{"contentChanges": []any{
			map[string]any{"range": map[string]any{"start": at(0, 6), "end": at(0, 10)}, "text": "!\U0001F600"},
		}}))
		d.call("initialized", nil)
		synctest.Wait()
		d.do(func() {
			if f := d.told.Files[0]; *f.Cursor != (editor.Cursor{Line: 1, Character: 10}) || f.Selection != "" || f.Range != nil {
				t.Errorf("after typing: %+v at %+v", f, f.Cursor)
			}
		})
		d.editor.Notify("textDocument/didClose", doc(nil))
		d.call("initialized", nil)
		synctest.Wait()
		d.do(func() {
			if len(d.told.Files) != 0 {
				t.Errorf("a closed file is in the context: %+v", d.told.Files)
			}
		})
	})
}

func TestOffers(t *testing.T) {
	for _, test := range []struct {
		name, choose string
		accept       []editor.DiffAcceptResult
		said, calls  string
		overwrite    string
	}{
		{name: "accepted", choose: "Accept", said: "Gemini CLI proposes a change to x.go"},
		{name: "rejected", choose: "Reject", calls: "reject"},
		{name: "reviewed", choose: "Review", said: "window/showDocument http://127.0.0.1:1/review"},
		{name: "left waiting", choose: "", said: "Gemini CLI proposes a change to x.go"},
		{name: "an editor that cannot ask", choose: "?", said: "see the code actions"},
		{name: "conflict", choose: "Accept", accept: []editor.DiffAcceptResult{{Status: editor.StatusConflict, Version: "v", Message: "it has changed"}}, said: "it has changed"},
		{name: "empty", choose: "Accept", accept: []editor.DiffAcceptResult{{Status: editor.StatusRefused, Message: "empty it yourself"}}, said: "empty it yourself"},
	} {
		t.Run(test.name, func(t *testing.T) {
			onDesk(t, func(t *testing.T, d *desk) {
				d.do(func() { d.choose, d.accept = test.choose, test.accept })
				d.initialize()
				d.open("1")
				synctest.Wait()
				d.do(func() {
					if said := strings.Join(d.said, "\n"); !strings.Contains(said, test.said) {
						t.Errorf("the editor received %q, want %q", said, test.said)
					}
					if calls := strings.Join(d.calls, " "); calls != test.calls {
						t.Errorf("the companion was asked %q, want %q", calls, test.calls)
					}
					if _, ok := d.texts["1"]; ok != (test.choose == "Accept") {
						t.Errorf("accepted: %v", ok)
					}
				})
				// A pending change is among the code actions until it is closed.
				var actions []map[string]any
				json.Unmarshal(d.call("textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(0, 0), "end": at(0, 0)}})), &actions)
				if len(actions) != 3 || actions[0]["title"] != "Gemini CLI: review the change to x.go" {
					t.Errorf("actions: %v", actions)
				}
				// It is not among the actions that an editor runs when it saves.
				onSave := map[string]any{"range": map[string]any{"start": at(0, 0), "end": at(9, 0)}, "context": map[string]any{"only": []string{"source.organizeImports"}}}
				if got := string(d.call("textDocument/codeAction", doc(onSave))); got != "[]" {
					t.Errorf("actions on save: %s", got)
				}
				if err := d.companion.Call(t.Context(), editor.MethodDiffClose, editor.DiffClose{ID: "1"}, nil); err != nil {
					t.Fatal(err)
				}
				if got := string(d.call("textDocument/codeAction", doc(nil))); got != "[]" {
					t.Errorf("actions after it: %s", got)
				}
			})
		})
	}
}

// While the editor asks whether to overwrite a file, the user edits the text on the review
// page, or the agent ends. The text from before was accepted.
func TestOverwriteLater(t *testing.T) {
	edited := "mine\n"
	for name, test := range map[string]struct {
		change editor.DiffChange
		said   string
		saves  bool
	}{
		"edited":         {editor.DiffChange{ID: "1", Content: &edited}, "the text of x.go was edited meanwhile", false},
		"the agent ends": {editor.DiffChange{ID: "1", State: editor.StateOrphaned}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			onDesk(t, func(t *testing.T, d *desk) {
				d.choose = "Accept"
				d.accept = []editor.DiffAcceptResult{{Status: editor.StatusConflict, Version: "v", Message: "it has changed"}}
				d.asked = func(actions []action) {
					if !slices.Contains(actions, action{"Overwrite"}) {
						return
					}
					d.choose = "Overwrite"
					d.companion.Notify(editor.MethodDiffChanged, test.change)
					// The server handles it before the user's answer.
					d.companion.Call(t.Context(), editor.MethodDiffOpen, editor.Diff{ID: "2", Path: systest.Abs("/home/a b/y.go"), State: editor.StateAccepted}, nil)
				}
				d.initialize()
				d.open("1")
				synctest.Wait()
				d.do(func() {
					if said := strings.Join(d.said, "\n"); !strings.Contains(said, test.said) {
						t.Errorf("the editor received %q, want %q", said, test.said)
					}
					if got := d.texts["1"]; got.Overwrite != "" {
						t.Errorf("it accepts %+v", got)
					}
					if saves := slices.Contains(d.calls, "save"); saves != test.saves {
						t.Errorf("saved: %v", saves)
					}
				})
			})
		})
	}
}

// The editor runs the command of a code action.
func TestCommands(t *testing.T) {
	onDesk(t, func(t *testing.T, d *desk) {
		d.initialize()
		for _, command := range []string{"pollux.accept", "pollux.reject"} {
			d.open(command)
			d.call("workspace/executeCommand", map[string]any{"command": command, "arguments": []string{command}})
			synctest.Wait()
		}
		d.do(func() {
			if _, accepted := d.texts["pollux.accept"]; !accepted || !slices.Equal(d.calls, []string{"reject"}) {
				t.Errorf("accepted: %v; calls: %q", accepted, d.calls)
			}
		})
	})
}

func TestChangedWorkspaceFolders(t *testing.T) {
	onDesk(t, func(t *testing.T, d *desk) {
		d.initialize()
		folder := func(uri string) []any { return []any{map[string]any{"uri": uri, "name": "x"}} }
		d.editor.Notify("workspace/didChangeWorkspaceFolders", map[string]any{"event": map[string]any{
			"added": folder(uriOf("/home/c")), "removed": folder(uriOf("/home/a b")),
		}})
		d.call("initialized", nil)
		synctest.Wait()
		d.do(func() {
			if !slices.Equal(d.told.Roots, []string{systest.Abs("/home/c")}) {
				t.Errorf("the roots are %q", d.told.Roots)
			}
		})
	})
}

// If the editor's cursor is a selection of one character, that counts as no selection.
func TestBlockCursor(t *testing.T) {
	for client, want := range map[string]string{"helix": "", "Neovim": "n"} {
		onDesk(t, func(t *testing.T, d *desk) {
			d.initializeAs(client)
			d.editor.Notify("textDocument/didOpen", doc(nil))
			d.call("textDocument/codeAction", doc(map[string]any{"range": map[string]any{"start": at(0, 1), "end": at(0, 2)}}))
			synctest.Wait()
			d.do(func() {
				if got := d.told.Files[0].Selection; got != want {
					t.Errorf("%s: selected %q, want %q", client, got, want)
				}
			})
		})
	}
}

func TestRequestsBeforeInitialize(t *testing.T) {
	onDesk(t, func(t *testing.T, d *desk) {
		if err := d.editor.Call(t.Context(), "textDocument/hover", doc(nil), nil); err == nil {
			t.Error("answered")
		}
		d.initialize()
		if err := d.editor.Call(t.Context(), "textDocument/definition", doc(nil), nil); err == nil {
			t.Error("an unknown method is answered")
		}
		d.call("shutdown", nil)
		if err := d.editor.Call(t.Context(), "textDocument/hover", doc(nil), nil); err == nil {
			t.Error("answered after shutdown")
		}
	})
}

// An editor that writes several requests before it reads an answer, without a buffer in
// between, gets all answers; then it sends exit and closes its side.
func TestEditorThatWritesBeforeItReads(t *testing.T) {
	mine, theirs := net.Pipe()
	local, remote := net.Pipe()
	companion := jsonrpc.NewConn(t.Context(), editor.NewStream(buffer(remote)), jsonrpc.HandlerWithError(func(*jsonrpc.Conn, *jsonrpc.Request) (any, error) {
		return editor.InitializeResult{Protocol: 1}, nil
	}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		Serve(t.Context(), theirs, Config{Dial: func(h editor.Handler) *editor.Client { return editor.NewClient(local, h) }})
	}()
	defer func() {
		mine.Close()
		<-served
		companion.Close()
		<-companion.DisconnectNotify()
	}()
	mine.SetDeadline(time.Now().Add(30 * time.Second))
	write := func(message string) {
		if _, err := fmt.Fprintf(mine, "Content-Length: %d\r\n\r\n%s", len(message), message); err != nil {
			t.Fatal(err)
		}
	}
	for i, method := range []string{"initialize", "textDocument/hover", "no/such", "shutdown", "textDocument/hover"} {
		write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{}}`, i, method))
	}
	write(`{"jsonrpc":"2.0","method":"exit"}`)
	answers := bufio.NewReader(mine)
	for i := range 5 {
		header, err := textproto.NewReader(answers).ReadMIMEHeader()
		size, sizeErr := strconv.Atoi(header.Get("Content-Length"))
		body := make([]byte, size)
		_, bodyErr := io.ReadFull(answers, body)
		var answer struct{ ID int }
		if err := errors.Join(err, sizeErr, bodyErr, json.Unmarshal(body, &answer)); err != nil || answer.ID != i {
			t.Errorf("answer %d is %s, %v", i, body, err)
		}
	}
}
