package copilotide

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking/blockingtest"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A backend is a companion with a problem in its project.
type backend struct {
	*blockingtest.Backend[*Session]
}

func newBackend() *backend { return &backend{blockingtest.New[*Session]()} }

// Diagnostics returns one problem of the file, or the only one in the project.
func (b *backend) Diagnostics(_ context.Context, path string) ([]editor.FileDiagnostics, error) {
	at := editor.Cursor{Line: 2, Character: 1}
	return []editor.FileDiagnostics{{Path: cmp.Or(path, "/project/a b"), Diagnostics: []editor.Diagnostic{{
		Severity: editor.SeverityError, Message: "wrong", Source: "vet", Range: editor.Range{Start: at, End: at},
	}}}}, nil
}

func (b *backend) Roots() []string { return []string{"/project"} }

// useNetwork makes a server listen on a network.
func useNetwork(s *Server) {
	s.HTTP.Listeners[0].Close()
	s.HTTP.Listeners[0] = systest.NewNetwork()
}

// A fixture is a server that serves on a network.
type fixture struct {
	*Server
	t       *testing.T
	backend *backend
	client  *http.Client
}

func config(t *testing.T, b *backend) Config {
	t.Helper()
	t.Setenv("POLLUX_RUNTIME_DIR", systest.ShortDir(t))
	return Config{
		Companion: attach.Companion{
			Backend: b, Log: slog.New(slog.DiscardHandler), Version: "test", Editor: editor.Info{Name: "test", DisplayName: "Test"},
		},
		Dir: filepath.Join(t.TempDir(), "copilot", "ide"),
	}
}

// start starts a server without a lock file. It is called before the bubble starts, since
// t.Setenv is not allowed in one.
func start(t *testing.T, run func(f *fixture)) {
	t.Helper()
	cfg := config(t, newBackend())
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		cfg.Backend = b
		s := New(cfg)
		useNetwork(s)
		s.Serve()
		transport := &http.Transport{DialContext: s.HTTP.Listeners[0].(*systest.Network).Dial}
		f := &fixture{s, t, b, &http.Client{Transport: transport}}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			s.Close(ctx)
			transport.CloseIdleConnections()
		})
		run(f)
	})
}

// do sends a request. The body has no known length, as the agent's.
func (f *fixture) do(ctx context.Context, method, session, body string, header http.Header) *http.Response {
	f.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/mcp", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization": {"Nonce " + f.nonce}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"},
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	res, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	return res
}

// read returns a response's body.
func (f *fixture) read(res *http.Response) string {
	f.t.Helper()
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// An agent is the other side of a session.
type agent struct {
	f       *fixture
	id      string // of the MCP session
	session *Session
	number  int
	notes   chan string // the parameters of notifications
	ended   chan bool
	cut     context.CancelFunc // breaks the stream
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"copilot-cli","version":"1.0.102"}}`

// connect connects an agent as Copilot CLI does.
func (f *fixture) connect() *agent {
	f.t.Helper()
	a := &agent{f: f}
	res := f.do(f.t.Context(), http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+hello+`}`, nil)
	if body := f.read(res); res.StatusCode != http.StatusOK || !strings.Contains(body, `"2025-11-25"`) {
		f.t.Fatalf("initialize: %s: %s", res.Status, body)
	}
	if a.id = res.Header.Get("Mcp-Session-Id"); a.id == "" {
		f.t.Fatal("no session ID")
	}
	res = f.do(f.t.Context(), http.MethodPost, a.id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	if f.read(res); res.StatusCode != http.StatusAccepted {
		f.t.Fatal(res.Status)
	}
	a.session = systest.Receive(f.t, f.backend.Joined)
	a.number = 1
	a.stream()
	return a
}

// stream opens the event stream.
func (a *agent) stream() {
	a.f.t.Helper()
	ctx, cancel := context.WithCancel(a.f.t.Context())
	a.notes, a.ended, a.cut = make(chan string, 100), make(chan bool), cancel
	res := a.f.do(ctx, http.MethodGet, a.id, "", nil)
	if res.StatusCode != http.StatusOK {
		a.f.t.Fatal(res.Status)
	}
	go a.events(res, a.notes, a.ended)
}

func (a *agent) events(res *http.Response, notes chan string, ended chan bool) {
	defer close(ended)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			notes <- string(data)
		}
	}
}

// An answer is the response to a request that may take long.
type pending struct {
	text   chan string
	cancel context.CancelFunc
}

// call calls a tool, with what the agent passes on of its model's calls in _meta.
func (a *agent) call(tool, args string) pending {
	a.f.t.Helper()
	a.number++
	ctx, cancel := context.WithCancel(a.f.t.Context())
	p := pending{make(chan string, 1), cancel}
	res := a.f.do(ctx, http.MethodPost, a.id, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"progressToken":%d,`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":%q,"arguments":%s}}`,
		a.number, a.number, tool, args), nil)
	notes := make(chan string, 10)
	go a.events(res, notes, make(chan bool))
	go func() {
		select {
		case data := <-notes:
			var m blockingtest.Message
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				panic(err)
			}
			p.text <- m.String()
		case <-ctx.Done():
		}
	}()
	a.f.t.Cleanup(cancel)
	return p
}

func (a *agent) openDiff(path, text, tab string) pending {
	a.f.t.Helper()
	args, err := json.Marshal(map[string]string{"original_file_path": path, "new_file_contents": text, "tab_name": tab})
	if err != nil {
		a.f.t.Fatal(err)
	}
	return a.call(toolOpenDiff, string(args))
}

func (a *agent) want(p pending, parts ...string) {
	a.f.t.Helper()
	got := systest.Receive(a.f.t, p.text)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			a.f.t.Errorf("the answer is %s, want %s", got, part)
		}
	}
}

// Clients without the nonce and web pages are refused.
func TestRefused(t *testing.T) {
	start(t, func(f *fixture) {
		post := `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
		for name, tt := range map[string]struct {
			method, session, body string
			header                http.Header
			status                int
			want                  string
		}{
			"no nonce":      {"POST", "", post, http.Header{"Authorization": nil}, 401, "nonce"},
			"another nonce": {"POST", "", post, http.Header{"Authorization": {"Nonce x"}}, 401, "nonce"},
			"as a bearer":   {"POST", "", post, http.Header{"Authorization": {"Bearer " + f.nonce}}, 401, "nonce"},
			"a web page":    {"POST", "", post, http.Header{"Origin": {"http://localhost"}}, 403, "web pages"},
			"no session":    {"POST", "", post, nil, 400, "send initialize first"},
		} {
			res := f.do(f.t.Context(), tt.method, tt.session, tt.body, tt.header)
			if body := f.read(res); res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%s: %s: %s", name, res.Status, body)
			}
		}
		if len(f.backend.Joined) != 0 {
			t.Error("a session connected")
		}
	})
}

func TestOpenDiff(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome companion.Outcome
		want    []string
	}{
		"accepted": {companion.Outcome{Accepted: true, Text: "new\n"},
			[]string{`"result":"SAVED"`, `"trigger":"accepted_via_button"`, `"tab_name":"tab"`}},
		"rejected": {companion.Outcome{}, []string{`"result":"REJECTED"`, `"trigger":"rejected_via_button"`}},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, func(f *fixture) {
				a := f.connect()
				if name, version := a.session.Client(); name != "Copilot CLI" || version != "1.0.102" {
					f.t.Errorf("%s %s", name, version)
				}
				p := a.openDiff("/project/a <&>", "new\n", "tab")
				want := companion.Proposal{Path: "/project/a <&>", Text: "new\n", ReadOnly: readOnly}
				if got := systest.Receive(f.t, f.backend.Proposed); got != want {
					f.t.Errorf("the proposal is %+v", got)
				}
				time.Sleep(24 * time.Hour) // the response is kept alive
				done := f.backend.Resolve(a.session, "/project/a <&>", tt.outcome)
				a.want(p, tt.want...)
				if err := systest.Receive(f.t, done); err != nil {
					f.t.Error(err)
				}
				a.want(a.call(toolCloseDiff, `{"tab_name":"tab"}`), `"success":true`)
			})
		})
	}
}

// The agent's own question counts if nothing shows the change.
func TestOpenDiffFails(t *testing.T) {
	start(t, func(f *fixture) {
		a := f.connect()
		for args, want := range map[string]string{
			`{}`: "original_file_path is missing", `{"original_file_path":"/a"}`: "new_file_contents is missing",
			`{"original_file_path":5}`: "do not fit",
		} {
			a.want(a.call(toolOpenDiff, args), "isError", want)
		}
		f.backend.OnPropose = func(companion.Proposal) error { return errors.New("nothing shows it") }
		a.want(a.openDiff("/project/a", "x", "tab"), "isError: nothing shows it")
	})
}

// After an answer in the terminal.
func TestWithdrawn(t *testing.T) {
	start(t, func(f *fixture) {
		a := f.connect()
		one, two := a.openDiff("/project/a", "x", "1"), a.openDiff("/project/b", "x", "2")
		a.want(a.call(toolCloseDiff, `{"tab_name":"1"}`), `"success":true`)
		a.want(one, `"result":"REJECTED"`)
		if n := f.backend.Open(); n != 1 {
			f.t.Errorf("%d diffs are open", n)
		}
		a.want(a.call(toolCloseDiff, `{}`), "isError: tab_name is missing")
		f.backend.Resolve(a.session, "/project/b", companion.Outcome{Accepted: true})
		a.want(two, "SAVED")
	})
}

func TestOtherTools(t *testing.T) {
	start(t, func(f *fixture) {
		a := f.connect()
		a.want(a.call(toolSessionName, `{"name":"x"}`), `{"success":true}`)
		for _, args := range []string{
			`{}`, `{"uri":"file:///project/a b"}`, `{"uri":"file:///project/a%20b"}`,
		} {
			if runtime.GOOS == "windows" {
				args = strings.ReplaceAll(args, "file:///", "file:///C:/")
			}
			path, uri := "/project/a b", "file:///project/a%20b"
			if runtime.GOOS == "windows" && args != "{}" {
				path, uri = `C:\\project\\a b`, "file:///C:/project/a%20b"
			}
			a.want(a.call(toolGetDiagnostics, args), `"filePath":"`+path+`"`, `"uri":"`+uri+`"`,
				`"severity":"error"`, `"message":"wrong"`, `"start":{"line":1,"character":0}`)
		}
		a.want(a.call(toolGetDiagnostics, `{"uri":"a"}`), "isError: uri names no file")
		a.want(a.call(toolGetSelection, `{}`), "null")
		f.backend.SetContext(companion.Context{Files: []companion.File{{
			Path: "/project/a", Active: true, Cursor: &editor.Cursor{Line: 2, Character: 1}, Selection: "beta",
		}}})
		a.want(a.call(toolGetSelection, `{}`), `"text":"beta"`, `"filePath":"/project/a"`, `"current":true`)
	})
}

// A killed agent's streams end. Its diffs stay for the user.
func TestKilled(t *testing.T) {
	start(t, func(f *fixture) {
		a := f.connect()
		p := a.openDiff("/project/a", "x", "tab")
		systest.Receive(f.t, f.backend.Proposed)
		a.cut()
		p.cancel()
		if systest.Receive(f.t, f.backend.Gone) != a.session {
			f.t.Error("another session has ended")
		}
		if n := f.backend.Open(); n != 1 {
			f.t.Errorf("%d diffs are open", n)
		}
		if err := systest.Receive(f.t, f.backend.Resolve(a.session, "/project/a", companion.Outcome{Accepted: true})); err == nil {
			f.t.Error("an outcome was delivered after the end")
		}
		synctest.Wait()
		if n := f.MCP.Sessions(); n != 0 {
			f.t.Errorf("%d sessions are still there", n)
		}
	})
}

// The context comes first on each stream, and then whenever it changes.
func TestContext(t *testing.T) {
	start(t, func(f *fixture) {
		a := f.connect()
		show := func(line int) {
			f.backend.SetContext(companion.Context{Files: []companion.File{{
				Path: "/project/a", Active: true, Cursor: &editor.Cursor{Line: line, Character: 1},
			}}})
		}
		// wants checks the last message on the open stream. There is none if part is empty.
		wants := func(when, part string) {
			f.t.Helper()
			synctest.Wait()
			last := ""
			for len(a.notes) > 0 {
				last = <-a.notes
			}
			if !strings.Contains(last, part) || part == "" && last != "" {
				f.t.Errorf("%s: %s, want %s", when, last, part)
			}
		}
		wants("with nothing open", "")
		a.stream()
		wants("with nothing open, on the next stream", "")
		show(3)
		wants("first", `"method":"selection_changed"`)
		f.backend.SetContext(companion.Context{})
		wants("closed", `"filePath":""`)
		show(4)
		wants("changed", `"line":3`)
		time.Sleep(24 * time.Hour) // the stream is kept alive
		a.cut()
		synctest.Wait()
		for _, line := range []int{7, 8, 5} { // while no stream is open
			show(line)
			time.Sleep(time.Second)
		}
		a.stream()
		synctest.Wait()
		if len(a.notes) == 0 {
			f.t.Error("nothing on the next stream")
		}
		for len(a.notes) > 0 {
			if got := <-a.notes; !strings.Contains(got, `"line":4`) {
				f.t.Errorf("on the next stream: %s", got)
			}
		}
		a.cut()
		synctest.Wait()
		f.backend.SetContext(companion.Context{}) // while no stream is open
		time.Sleep(time.Second)
		a.stream()
		wants("closed while no stream was open", `"filePath":""`)
		a.stream() // the last message may have been lost with the old one
		wants("on a stream after the one with the last message", `"filePath":""`)
	})
}

// A server that closes delivers what is decided, and ends its streams.
func TestClose(t *testing.T) {
	start(t, func(f *fixture) {
		a := f.connect()
		p := a.openDiff("/project/a", "x", "tab")
		systest.Receive(f.t, f.backend.Proposed)
		done := f.backend.Resolve(a.session, "/project/a", companion.Outcome{})
		if err := f.Close(f.t.Context()); err != nil {
			f.t.Error(err)
		}
		a.want(p, "REJECTED")
		if err := systest.Receive(f.t, done); err != nil {
			f.t.Error(err)
		}
		<-a.ended
	})
}
