package claudeide

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking/blockingtest"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A backend is a companion whose editors may show changes and report problems.
type backend struct {
	*blockingtest.Backend[*Session]
	roots   []string
	changed chan *Session
	// diagnostics, if set, answers Diagnostics and BeforeWrite.
	diagnostics func(path string) ([]editor.FileDiagnostics, error)
	written     bool // BeforeWrite was called, and AfterWrites was not since

	mu     sync.Mutex
	hidden bool // nothing shows changes
	acted  []*Session
}

func newBackend() *backend {
	return &backend{Backend: blockingtest.New[*Session](), changed: make(chan *Session, 100)}
}

func (b *backend) Roots() []string { return b.roots }

func (b *backend) Acted(s companion.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acted = append(b.acted, s.(*Session))
}

func (b *backend) Changed(s companion.Session) { b.changed <- s.(*Session) }

func (b *backend) Diagnostics(_ context.Context, path string) ([]editor.FileDiagnostics, error) {
	if b.diagnostics == nil {
		return nil, nil
	}
	return b.diagnostics(path)
}

func (b *backend) BeforeWrite(ctx context.Context, _ companion.Session, path string) ([]editor.FileDiagnostics, error) {
	b.written = true
	return b.Diagnostics(ctx, path)
}

// AfterWrites takes a second after a write.
func (b *backend) AfterWrites(ctx context.Context, _ companion.Session) {
	if b.written {
		time.Sleep(time.Second)
	}
	b.written = false
}

func (b *backend) Shows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.hidden
}

func (b *backend) setShows(shows bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hidden = !shows
}

// setFiles sets the open files.
func (b *backend) setFiles(files ...companion.File) { b.SetContext(companion.Context{Files: files}) }

// A fixture is a server that serves on a network.
type fixture struct {
	*Server
	t       *testing.T
	backend *backend
	network *systest.Network
	log     *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func config(t *testing.T, b *backend) Config {
	return Config{
		Companion: attach.Companion{
			Backend: b, Log: slog.New(slog.DiscardHandler), Version: "test", Editor: editor.Info{Name: "test", DisplayName: "Test"},
		},
		Dir: filepath.Join(t.TempDir(), "ide"), State: filepath.Join(t.TempDir(), "state"), Roots: []string{"/project"},
	}
}

// start starts a server without a lock file.
func start(t *testing.T) *fixture {
	t.Helper()
	b := newBackend()
	log := &syncBuffer{}
	cfg := config(t, b)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.HTTP.Listeners[0].Close()
	f := &fixture{s, t, b, systest.NewNetwork(), log}
	s.HTTP.Listeners[0] = f.network
	s.Serve()
	t.Cleanup(f.close)
	return f
}

// inBubble runs a test with a server in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, start(t)) })
}

// withClaude runs a test with a server to which Claude Code is connected.
func withClaude(t *testing.T, test func(t *testing.T, f *fixture, a *agent)) {
	t.Helper()
	inBubble(t, func(t *testing.T, f *fixture) { test(t, f, f.connect("claude-code")) })
}

func (f *fixture) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	f.Close(ctx)
}

// handshake sends the request that opens a connection.
func (f *fixture) handshake(header http.Header, subprotocols ...string) (*websocket.Conn, *http.Response, error) {
	transport := &http.Transport{DialContext: f.network.Dial, DisableKeepAlives: true}
	return websocket.Dial(f.t.Context(), "ws://127.0.0.1/", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: header, Subprotocols: subprotocols,
	})
}

func (f *fixture) auth() http.Header { return http.Header{TokenHeader: {f.token}} }

// An agent is the other side of a session.
type agent struct {
	f       *fixture
	ws      *websocket.Conn
	session *Session
	id      int
	answers chan blockingtest.Message
	kept    map[int]blockingtest.Message
	notes   chan blockingtest.Message
	ended   chan struct{} // closed when the connection has ended
}

// dial opens a connection, and reads it unless told otherwise.
func (f *fixture) dial(reads bool) *agent {
	f.t.Helper()
	ws, _, err := f.handshake(f.auth(), Subprotocol)
	if err != nil {
		f.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	a := &agent{
		f: f, ws: ws, answers: make(chan blockingtest.Message, 100), kept: make(map[int]blockingtest.Message),
		notes: make(chan blockingtest.Message, 1000), ended: make(chan struct{}),
	}
	f.t.Cleanup(func() { ws.CloseNow() })
	if reads {
		go a.read()
	}
	return a
}

func (a *agent) read() {
	defer close(a.ended)
	for {
		_, data, err := a.ws.Read(context.Background())
		if err != nil {
			return
		}
		var m blockingtest.Message
		if err := json.Unmarshal(data, &m); err != nil {
			panic(err)
		}
		if m.ID == nil {
			a.notes <- m
		} else {
			a.answers <- m
		}
	}
}

// connect connects an agent of that name.
func (f *fixture) connect(name string) *agent {
	f.t.Helper()
	a := f.dial(true)
	a.initialize(name)
	a.session = systest.Receive(f.t, f.backend.Joined)
	return a
}

func initialize(name string) string {
	return `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + name + `","version":"1.2"}}`
}

func (a *agent) initialize(name string) {
	a.f.t.Helper()
	id := a.request("initialize", initialize(name))
	if v := a.answer(id).Result.ProtocolVersion; v != "2025-11-25" {
		a.f.t.Fatalf("protocol version %q", v)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (a *agent) send(text string) {
	a.f.t.Helper()
	if err := a.ws.Write(a.f.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		a.f.t.Fatal(err)
	}
}

func (a *agent) request(method, params string) (id int) {
	a.f.t.Helper()
	a.id++
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.id, method, params))
	return a.id
}

func (a *agent) call(tool, args string) (id int) {
	a.f.t.Helper()
	return a.request("tools/call", `{"name":"`+tool+`","arguments":`+args+`}`)
}

// stopReading fills the queue of answers: the agent reads nothing more until the test
// takes an answer.
func (a *agent) stopReading() {
	a.f.t.Helper()
	for range cap(a.answers) + 2 {
		a.request("ping", "{}")
	}
	synctest.Wait()
}

func (a *agent) openDiff(path, text, tab string) (id int) {
	a.f.t.Helper()
	args, err := json.Marshal(map[string]string{
		"old_file_path": path, "new_file_path": path, "new_file_contents": text, "tab_name": tab,
	})
	if err != nil {
		a.f.t.Fatal(err)
	}
	return a.call(toolOpenDiff, string(args))
}

// show proposes a change, and waits until the companion has it.
func (a *agent) show(path, text, tab string) (id int) {
	a.f.t.Helper()
	id = a.openDiff(path, text, tab)
	systest.Receive(a.f.t, a.f.backend.Proposed)
	return id
}

// delivered checks that the agent has received an outcome.
func delivered(t *testing.T, done <-chan error) {
	t.Helper()
	if err := systest.Receive(t, done); err != nil {
		t.Error(err)
	}
}

// answer returns the answer to a request.
func (a *agent) answer(id int) blockingtest.Message {
	a.f.t.Helper()
	for {
		if m, ok := a.kept[id]; ok {
			delete(a.kept, id)
			return m
		}
		m := systest.Receive(a.f.t, a.answers)
		if _, ok := a.kept[*m.ID]; ok {
			a.f.t.Fatalf("request %d has two answers", *m.ID)
		}
		a.kept[*m.ID] = m
	}
}

func (a *agent) want(id int, want string) {
	a.f.t.Helper()
	if got := a.answer(id).String(); got != want {
		a.f.t.Errorf("the answer is %q, want %q", got, want)
	}
}

// silent checks that nothing but notifications has arrived.
func (a *agent) silent() {
	a.f.t.Helper()
	synctest.Wait()
	select {
	case m := <-a.answers:
		a.f.t.Errorf("an answer: %s", m)
	default:
	}
	for id, m := range a.kept {
		a.f.t.Errorf("an answer to %d: %s", id, m)
	}
}

func TestHandshake(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(f *fixture, h http.Header)
		offer  []string
		status int
		chosen string
	}{
		"Claude Code":       {offer: []string{"mcp"}, status: 101, chosen: "mcp"},
		"opencode":          {status: 101},
		"another protocol":  {offer: []string{"other"}, status: 101},
		"several protocols": {offer: []string{"other", "mcp"}, status: 101, chosen: "mcp"},
		"a page":            {change: func(_ *fixture, h http.Header) { h.Set("Origin", "http://127.0.0.1") }, status: 403},
		"a page without a name": {
			change: func(_ *fixture, h http.Header) { h["Origin"] = []string{""} }, status: 403,
		},
		"no token":     {change: func(_ *fixture, h http.Header) { h.Del(TokenHeader) }, status: 401},
		"wrong token":  {change: func(_ *fixture, h http.Header) { h.Set(TokenHeader, "x") }, status: 401},
		"longer token": {change: func(f *fixture, h http.Header) { h.Set(TokenHeader, f.token+"x") }, status: 401},
		"nothing shows changes": {
			change: func(f *fixture, _ http.Header) { f.backend.setShows(false) }, status: 503,
		},
		"the page first": {
			change: func(f *fixture, h http.Header) {
				h.Del(TokenHeader)
				h.Set("Origin", "http://x")
				f.backend.setShows(false)
			},
			status: 403,
		},
		"the token before the views": {
			change: func(f *fixture, h http.Header) { h.Del(TokenHeader); f.backend.setShows(false) }, status: 401,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				header := f.auth()
				if tt.change != nil {
					tt.change(f, header)
				}
				ws, res, err := f.handshake(header, tt.offer...)
				if res == nil || res.StatusCode != tt.status {
					t.Fatalf("%v, %v; want %d", res, err, tt.status)
				}
				if ws == nil {
					return
				}
				defer ws.CloseNow()
				if got, ok := res.Header["Sec-Websocket-Protocol"]; strings.Join(got, ",") != tt.chosen || ok != (tt.chosen != "") {
					t.Errorf("the Subprotocol is %q", got)
				}
				if got := res.Header.Get("Sec-Websocket-Extensions"); got != "" {
					t.Errorf("the server compresses: %s", got)
				}
			})
		})
	}
}

// Only a handshake takes up a session.
func TestOrdinaryRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = f.auth()
		client := &http.Client{Transport: &http.Transport{DialContext: f.network.Dial, DisableKeepAlives: true}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUpgradeRequired || f.MCP.Sessions() != 0 {
			t.Errorf("%s, %d sessions", res.Status, f.MCP.Sessions())
		}
	})
}

func TestTooManySessions(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		var last *agent
		for range 64 {
			last = f.dial(true)
		}
		if _, res, err := f.handshake(f.auth()); res == nil || res.StatusCode != 503 {
			t.Errorf("one more session: %v", err)
		}
		last.ws.CloseNow()
		synctest.Wait()
		f.dial(true)
	})
}

// Close ends in time, no matter what the agents do.
func TestClose(t *testing.T) {
	for name, tt := range map[string]func(t *testing.T, f *fixture){
		"an agent that does not read its first answer": func(_ *testing.T, f *fixture) {
			f.dial(false).request("initialize", initialize("claude-code"))
		},
		"an agent that does not read its decision": func(t *testing.T, f *fixture) {
			a := f.connect("claude-code")
			a.show("/project/a", "a", "tab")
			a.stopReading()
			done := f.backend.Resolve(a.session, "/project/a", companion.Outcome{})
			t.Cleanup(func() {
				for len(a.answers) > 0 {
					<-a.answers
				}
				if err := systest.Receive(t, done); err == nil {
					t.Error("the outcome that nobody read was delivered")
				}
			})
		},
		"half a frame": func(t *testing.T, f *fixture) {
			conn, err := f.network.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				b := make([]byte, 1000)
				for {
					if _, err := conn.Read(b); err != nil {
						return
					}
				}
			}()
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s: %s\r\n\r\n", TokenHeader, f.token)
			conn.Write([]byte{0x81, 0xfe, 0xff})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				tt(t, f)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				f.Close(ctx)
				if took := time.Since(begun); took > time.Second {
					t.Errorf("Close took %s", took)
				}
				if n := f.MCP.Sessions(); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}

// When nothing shows changes any more, the agents receive the rejections, and then
// their sessions end, so that they show changes in the terminal.
func TestNoViews(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		decided := a.show("/project/a", "a", "tab")
		undecided := a.show("/project/b", "b", "other tab")
		f.backend.setShows(false)
		done := f.backend.Resolve(a.session, "/project/a", companion.Outcome{})
		begun := time.Now()
		f.ViewsChanged()
		a.want(decided, "DIFF_REJECTED|tab")
		systest.Receive(t, a.ended)
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %s: an undecided change delays the end", took)
		}
		delivered(t, done)
		systest.Receive(t, f.backend.Gone)
		select {
		case m := <-a.answers:
			t.Errorf("an answer to %d: %s", undecided, m)
		default:
		}
	})
}

// Close lets the agents receive what was decided just before it. An editor that ends takes the last
// view and the companion with it: the agents receive the rejections even so.
func TestCloseDelivers(t *testing.T) {
	for name, views := range map[string]bool{"with a view": true, "without views": false} {
		t.Run(name, func(t *testing.T) {
			withClaude(t, func(t *testing.T, f *fixture, a *agent) {
				id := a.show("/project/a", "a", "tab")
				a.stopReading()
				f.backend.setShows(views)
				done := f.backend.Resolve(a.session, "/project/a", companion.Outcome{})
				f.ViewsChanged()
				synctest.Wait() // without views, the sessions are about to end
				go f.close()
				synctest.Wait()
				a.want(id, "DIFF_REJECTED|tab")
				delivered(t, done)
				systest.Receive(t, a.ended)
				systest.Receive(t, f.backend.Gone)
			})
		})
	}
}

// An agent that does not read delays the end of the sessions for a moment only.
func TestNoViewsAndNobodyReads(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		a.show("/project/a", "a", "tab")
		a.stopReading()
		done := f.backend.Resolve(a.session, "/project/a", companion.Outcome{})
		f.backend.setShows(false)
		begun := time.Now()
		f.ViewsChanged()
		systest.Receive(t, f.backend.Gone)
		if took := time.Since(begun); took > flushTimeout {
			t.Errorf("it took %s", took)
		}
		if err := systest.Receive(t, done); err == nil {
			t.Error("the outcome that nobody read was delivered")
		}
		for len(a.answers) > 0 {
			<-a.answers
		}
	})
}

func TestAddEnv(t *testing.T) {
	env := make(map[string]string)
	new(Server).AddEnv(env)
	if len(env) != len(EnvNames) || cmp.Or(env["CLAUDE_CODE_AUTO_CONNECT_IDE"], "unset") != "true" {
		t.Errorf("%v", env)
	}
	if _, ok := env[EnvPort]; ok {
		t.Error("the variable that breaks opencode is set")
	}
}

// A companion starts without a home: Gemini CLI needs none.
func TestNoHome(t *testing.T) {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	cfg := config(t, newBackend())
	cfg.Dir = ""
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if err := s.Publish([]string{t.TempDir()}, nil); err != nil {
		t.Error(err)
	}
	if disk.Exists(s.lockPath()) {
		t.Errorf("the lock file is %s", s.lockPath())
	}
}
