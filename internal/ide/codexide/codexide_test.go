package codexide

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A backend is a companion with fixed files.
type backend struct {
	roots []string
	files []companion.File
	came  chan *Session
	gone  chan *Session
}

func newBackend(roots ...string) *backend {
	return &backend{roots: roots, came: make(chan *Session, 10), gone: make(chan *Session, 10)}
}

func (b *backend) Connect(s companion.Session)    { b.came <- s.(*Session) }
func (b *backend) Disconnect(s companion.Session) { b.gone <- s.(*Session) }
func (b *backend) Context() companion.Context     { return companion.Context{Files: b.files} }
func (b *backend) Roots() []string                { return b.roots }

// with sets the open files. The first one has the focus.
func (b *backend) with(paths ...string) *backend {
	for i, path := range paths {
		b.files = append(b.files, companion.File{Path: path, Active: i == 0, Focused: int64(100 - i)})
	}
	return b
}

// A machine has the directories of one user's agents and companions.
type machine struct {
	t      *testing.T
	socket string // of the agents
	first  string // a socket that agents prefer
	dir    string // of the companions' sockets

	mu       sync.Mutex
	siblings []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := systest.ShortDir(t)
	t.Setenv("CODEX_HOME", dir) // somebody uses Codex CLI
	socket := filepath.Join(dir, "codex-ipc", "ipc.sock")
	if sock.IsPipe(Socket()) {
		socket = Socket() + "-test-" + rand.Text()
	}
	return &machine{t: t, dir: dir, socket: socket, first: filepath.Join(dir, "first.sock")}
}

// mustBeFree fails the test if there is a socket for the agents.
func (m *machine) mustBeFree() {
	m.t.Helper()
	if conn, err := Dial(m.socket); err == nil {
		conn.Close()
		m.t.Error("somebody serves the socket")
	}
	if _, err := os.Lstat(m.socket); !sock.IsPipe(m.socket) && err == nil {
		m.t.Error("the socket is still there")
	}
}

// start starts a companion's server, whose socket for other companions is named.
func (m *machine) start(b *backend, name string) *Server {
	m.t.Helper()
	own := filepath.Join(m.dir, name)
	s := New(Config{Backend: b, Socket: m.socket, Preferred: []string{m.first}, Siblings: func() (others []string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, socket := range m.siblings {
			if socket != own {
				others = append(others, socket)
			}
		}
		return others
	}})
	l, err := sock.Listen(own)
	if err != nil {
		m.t.Fatal(err)
	}
	systest.Serve(m.t, l, func(conn net.Conn) {
		line := make([]byte, len(s.Preamble()))
		if _, err := conn.Read(line); err != nil || string(line) != s.Preamble() {
			conn.Close()
			return
		}
		s.ServeConn(struct{ net.Conn }{conn})
	})
	m.mu.Lock()
	m.siblings = append(m.siblings, own)
	m.mu.Unlock()
	s.Serve()
	if err := s.Publish(nil, nil); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { s.Close(m.t.Context()) })
	return s
}

// An agent is a connection to the socket.
type agent struct {
	t    *testing.T
	conn net.Conn
}

func (m *machine) dial() *agent {
	m.t.Helper()
	conn, err := Dial(m.socket)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &agent{m.t, conn}
}

func (a *agent) send(message string) {
	a.t.Helper()
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(message)))
	if _, err := a.conn.Write(append(frame, message...)); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) receive() (res response) {
	a.t.Helper()
	data, err := readFrame(a.conn, maxAnswer)
	if err == nil {
		err = json.Unmarshal(data, &res)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return res
}

// ended waits until the server has closed the connection.
func (a *agent) ended() {
	a.t.Helper()
	data, err := readFrame(a.conn, maxAnswer)
	if err == nil {
		a.t.Fatalf("the connection goes on: %s", data)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		a.t.Fatal("the connection stays open")
	}
}

// ask asks for the context as Codex CLI does. It returns the names of the open files, or
// the error.
func (m *machine) ask(dir string) string {
	m.t.Helper()
	a := m.dial()
	defer a.conn.Close()
	a.send(contextRequest(dir))
	return opened(m.t, a.receive())
}

func contextRequest(dir string) string {
	data, err := json.Marshal(request{
		Type: typeRequest, RequestID: "1", Source: codexTUI, Method: methodContext, Params: params{WorkspaceRoot: dir},
	})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func opened(t *testing.T, res response) string {
	t.Helper()
	if res.Error != "" {
		return res.Error
	}
	var result contextResult
	if err := json.Unmarshal(res.Result, &result); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tab := range result.IDEContext.OpenTabs {
		names = append(names, tab.Path)
	}
	return strings.Join(names, " ")
}

// project returns a directory with files, as a real path.
func project(t *testing.T, names ...string) string {
	t.Helper()
	dir := systest.Dir(t)
	for _, name := range names {
		systest.WriteFile(t, filepath.Join(dir, name), "x\n")
	}
	return dir
}

// Codex CLI 0.169 sends its question first, on a connection for each prompt. Older
// releases initialize first, and some ask again on the same connection. doctor asks
// as the agent does, but is not one.
func TestAsk(t *testing.T) {
	m := newMachine(t)
	dir := project(t, "a.txt")
	b := newBackend(dir)
	m.start(b, "1-1.sock")
	for asked, want := range map[string]error{dir: nil, systest.Abs("/elsewhere"): ErrOtherFolder} {
		a := m.dial()
		if err := Ask(a.conn, asked); !errors.Is(err, want) {
			t.Errorf("in %s: %v", asked, err)
		}
	}
	if len(b.came) > 0 {
		t.Error("doctor counts as an agent")
	}
}

func TestAnswer(t *testing.T) {
	m := newMachine(t)
	dir := project(t, "a.txt", "b.txt")
	b := newBackend(dir).with(filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt"))
	m.start(b, "1-1.sock")
	if got := m.ask(dir); got != "a.txt b.txt" {
		t.Errorf("the agent receives %q", got)
	}
	session := systest.Receive(t, b.came)
	if name, version := session.Client(); name != "Codex CLI" || version != "" || session.Limits() == "" {
		t.Errorf("connected: %q %q, %q", name, version, session.Limits())
	}
	a := m.dial()
	a.send(`{"type":"request","requestId":"i","sourceClientId":"initializing-client","version":0,"method":"initialize",` +
		`"params":{"clientType":"desktop"}}`)
	res := a.receive()
	var hello initializeResult
	if err := json.Unmarshal(res.Result, &hello); err != nil || hello.ClientID == "" || res.RequestID != "i" || res.ResultType != "success" {
		t.Errorf("initialize: %+v, %v", res, err)
	}
	for range 2 {
		a.send(strings.Replace(contextRequest(filepath.Join(dir, "sub")), codexTUI, hello.ClientID, 1))
		if got := opened(t, a.receive()); !strings.HasSuffix(got, "b.txt") {
			t.Errorf("the agent receives %q", got)
		}
	}
	for _, other := range []string{systest.Abs("/elsewhere"), "", "relative", filepath.Dir(dir)} {
		if got := m.ask(other); got != errNoClient {
			t.Errorf("in %q the agent receives %q", other, got)
		}
	}
	a.send(`{"type":"request","requestId":"n","sourceClientId":"codex-tui","method":"something-new"}`)
	if res := a.receive(); res.Error != errNoHandler {
		t.Errorf("a method of a later release: %+v", res)
	}
	select {
	case <-b.came: // the same process
		t.Error("the agent counts twice")
	default:
	}
}

// A session lasts as long as its process.
func TestSessionEnds(t *testing.T) {
	m := newMachine(t)
	dir := project(t)
	b := newBackend(dir)
	s := m.start(b, "1-1.sock")
	const dead = 1 << 30 // above every limit
	s.asked(dead, dir)
	if session := systest.Receive(t, b.came); systest.Receive(t, b.gone) != session {
		t.Error("another session ended")
	}
	s.asked(os.Getpid(), dir)
	session := systest.Receive(t, b.came)
	if p := session.Process(); p.PID != os.Getpid() || p.Dir != dir || p.Terminal != proc.Terminal(p.PID) {
		t.Errorf("the process is %+v", p)
	}
	s.Close(t.Context())
	if systest.Receive(t, b.gone) != session {
		t.Error("another session ended")
	}
	s.asked(os.Getpid(), dir)
	if len(b.came) > 0 {
		t.Error("a session came after the end")
	}
}

// Idle connections do not keep an agent out: the oldest one is closed for it.
func TestIdleConnections(t *testing.T) {
	for name, greet := range map[string]func(a *agent, dir string){
		"silent":         func(*agent, string) {},
		"within a frame": func(a *agent, _ string) { a.conn.Write([]byte("\x10\x00\x00\x00{")) },
		"after an answer": func(a *agent, dir string) {
			a.send(contextRequest(dir))
			a.receive()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			dir := project(t, "a.txt")
			m.start(newBackend(dir).with(filepath.Join(dir, "a.txt")), "1-1.sock")
			var idle []*agent
			for range 100 {
				a := m.dial()
				greet(a, dir)
				idle = append(idle, a)
			}
			ended := make(chan bool, len(idle))
			for _, a := range idle {
				go func() {
					io.Copy(io.Discard, a.conn)
					ended <- true
				}()
			}
			for range len(idle) - maxConns {
				systest.Receive(t, ended)
			}
			// The server has seen all of them, so that the next ones are the youngest.
			for range 3 {
				if got := m.ask(dir); got != "a.txt" {
					t.Errorf("the agent receives %q", got)
				}
			}
		})
	}
}

// Requests that the server is answering are never dropped for others.
func TestBusyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := project(t, "a.txt")
		b := &slowBackend{backend: newBackend(dir).with(filepath.Join(dir, "a.txt")), release: make(chan bool)}
		s := New(Config{Backend: b, Socket: "unused", Siblings: func() []string { return nil }})
		ask := func() *agent {
			conn, end := net.Pipe()
			go func() {
				s.serveConn(end)
				end.Close()
			}()
			a := &agent{t, conn}
			a.send(contextRequest(dir))
			return a
		}
		var busy []*agent
		for range maxConns {
			busy = append(busy, ask())
		}
		synctest.Wait()
		for range 2 * maxConns {
			a := ask()
			if res := a.receive(); res.Error != errTimeout {
				t.Fatalf("the answer is %+v", res)
			}
			synctest.Wait() // until it counts as idle: many at the same moment would end a new one
			defer a.conn.Close()
		}
		close(b.release)
		for _, a := range busy {
			if got := opened(t, a.receive()); got != "a.txt" {
				t.Errorf("the agent receives %q", got)
			}
			a.conn.Close()
		}
		a := ask()
		if got := opened(t, a.receive()); got != "a.txt" {
			t.Errorf("the agent receives %q", got)
		}
		a.conn.Close()
		s.Close(t.Context())
	})
}

// A slowBackend says what is open only after its release.
type slowBackend struct {
	*backend
	release chan bool
}

func (b *slowBackend) Context() companion.Context {
	<-b.release
	return b.backend.Context()
}

// The companion with the most specific workspace answers; of two with the same one, the
// most recently used.
func TestSiblings(t *testing.T) {
	m := newMachine(t)
	outer := project(t, "outer")
	inner := filepath.Join(outer, "inner")
	write := func(name string) string {
		path := filepath.Join(inner, name)
		systest.WriteFile(t, path, "")
		return path
	}
	owner := newBackend(outer).with(filepath.Join(outer, "outer"))
	early, late := newBackend(inner).with(write("early")), newBackend(inner).with(write("late"))
	late.files[0].Focused = 1000
	m.start(owner, "1-1.sock")
	m.start(early, "2-2.sock")
	m.start(late, "3-3.sock")
	for dir, want := range map[string]string{outer: "outer", inner: "late", systest.Abs("/elsewhere"): errNoClient} {
		if got := m.ask(dir); got != want {
			t.Errorf("in %s the agent receives %q, want %q", dir, got, want)
		}
	}
	if systest.Receive(t, owner.came) == nil || systest.Receive(t, late.came) == nil || len(early.came) > 0 {
		t.Error("the agent is connected to other companions than those that answered")
	}
}

// The owner answers itself if it fits best.
func TestOwnerFitsBest(t *testing.T) {
	m := newMachine(t)
	outer := project(t, "outer")
	inner := filepath.Join(outer, "inner")
	systest.MakeDir(t, inner)
	m.start(newBackend(inner).with(filepath.Join(inner, "new")), "1-1.sock")
	m.start(newBackend(outer).with(filepath.Join(outer, "outer")), "2-2.sock")
	for dir, want := range map[string]string{inner: "new", outer: "outer"} {
		if got := m.ask(dir); got != want {
			t.Errorf("in %s the agent receives %q, want %q", dir, got, want)
		}
	}
}

// A companion that does not answer costs little.
func TestStoppedSibling(t *testing.T) {
	m := newMachine(t)
	dir := project(t, "a.txt")
	m.start(newBackend(dir).with(filepath.Join(dir, "a.txt")), "1-1.sock")
	stopped := filepath.Join(m.dir, "2-2.sock")
	l, err := sock.Listen(stopped)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m.mu.Lock()
	m.siblings = append(m.siblings, stopped, filepath.Join(m.dir, "gone.sock"))
	m.mu.Unlock()
	if got := m.ask(dir); got != "a.txt" {
		t.Errorf("the agent receives %q", got)
	}
}

func TestHint(t *testing.T) {
	if Hint(nil) == "" || Hint([]string{"--model", "x"}) == "" || Hint([]string{"exec", "question"}) != "" {
		t.Error("the hint is for those who have a prompt to type into")
	}
}

func TestPrompt(t *testing.T) {
	roots := []string{"/project"}
	for _, tt := range []struct {
		p    editor.PromptParams
		want string
	}{
		{editor.PromptParams{Path: "/project/a.txt"}, "a.txt "},
		{editor.PromptParams{Path: "/project/a b.txt", Line: 2, EndLine: 3, Question: "why?"}, `"a b.txt" lines 2-3: why?`},
		{editor.PromptParams{Path: "/project/a.txt", Line: 2, EndLine: 2}, "a.txt line 2 "},
		{editor.PromptParams{Question: "why?"}, "why?"},
	} {
		if got := Prompt(tt.p, roots); got.Text != tt.want || got.Ready == "" {
			t.Errorf("%+v becomes %q, want %q", tt.p, got.Text, tt.want)
		}
	}
}

func TestBetter(t *testing.T) {
	for _, tt := range []struct {
		a, b candidate
		want bool
	}{
		{candidate{5, 0}, candidate{3, 9}, true},
		{candidate{3, 9}, candidate{5, 0}, false},
		{candidate{5, 2}, candidate{5, 1}, true},
		{candidate{5, 1}, candidate{5, 2}, false},
		{candidate{5, 1}, candidate{5, 1}, false},
		{candidate{0, 2}, candidate{0, 1}, false}, // neither has the directory
	} {
		if got := tt.a.better(tt.b); got != tt.want {
			t.Errorf("%+v is better than %+v: %v", tt.a, tt.b, got)
		}
	}
}
