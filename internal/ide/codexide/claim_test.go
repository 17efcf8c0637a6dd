package codexide

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

// A program other than Pollux serves the agents. It sends its name on each connection.
type program struct {
	t        *testing.T
	path     string
	name     string
	listener net.Listener
}

// listenAt listens as another program does.
func listenAt(t *testing.T, path string) *program {
	t.Helper()
	if !sock.IsPipe(path) {
		systest.MakeDir(t, filepath.Dir(path))
	}
	l, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	p := &program{t, path, rand.Text(), l}
	systest.Serve(t, l, func(conn net.Conn) {
		conn.Write([]byte(p.name))
		conn.Close()
	})
	return p
}

// mustServe fails the test unless the program has the socket.
func (p *program) mustServe() {
	p.t.Helper()
	conn, err := Dial(p.path)
	if err != nil {
		p.t.Fatal("the other program has lost its socket: ", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	name := make([]byte, len(p.name))
	if _, err := io.ReadFull(conn, name); err != nil || string(name) != p.name {
		p.t.Errorf("the other program has lost its socket: %q, %v", name, err)
	}
}

// onlyFiles skips a test of what only the file of a socket needs.
func onlyFiles(t *testing.T, path string) {
	t.Helper()
	if sock.IsPipe(path) {
		t.Skip("a pipe has no file")
	}
}

// stat returns the file of a socket, which must be there.
func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	file, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestClaim(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setUp func(t *testing.T, path string)
		want  error // nil if the claim succeeds
	}{
		{"nothing there", func(*testing.T, string) {}, nil},
		{"a server", func(t *testing.T, path string) { listenAt(t, path) }, errTaken},
		{"a dead server's socket", func(t *testing.T, path string) { listenAt(t, path).listener.Close() }, nil},
		{"a file", func(t *testing.T, path string) {
			onlyFiles(t, path)
			systest.WriteFile(t, path, "theirs")
		}, errForeign},
		{"a public directory", func(t *testing.T, path string) {
			onlyFiles(t, path)
			systest.MakeDir(t, filepath.Dir(path))
			if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := newMachine(t).socket
			tt.setUp(t, path)
			before, _ := os.Lstat(path)
			c, err := newClaim(path)
			if !errors.Is(err, tt.want) {
				t.Fatalf("the claim returns %v, want %v", err, tt.want)
			}
			if err != nil {
				if !sock.IsPipe(path) && !os.SameFile(before, stat(t, path)) {
					t.Error("the file was replaced")
				}
				return
			}
			if !c.held() {
				t.Error("the claim is not held")
			}
			if !sock.IsPipe(path) && (stat(t, path).Mode().Perm() != 0o600 || stat(t, filepath.Dir(path)).Mode().Perm() != 0o700) {
				t.Errorf("modes %v and %v", stat(t, path).Mode(), stat(t, filepath.Dir(path)).Mode())
			}
			if _, err := newClaim(path); !errors.Is(err, errTaken) {
				t.Errorf("a second claim returns %v", err)
			}
			c.release()
			if !sock.IsPipe(path) {
				if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
					t.Errorf("these files stay: %v", left)
				}
			}
			listenAt(t, path).mustServe() // it is free
		})
	}
}

// A directory that another user could have prepared is not used.
func TestClaimInALink(t *testing.T) {
	m := newMachine(t)
	onlyFiles(t, m.socket)
	systest.Link(t, m.dir, filepath.Dir(m.socket))
	if c, err := newClaim(m.socket); err == nil {
		c.release()
		t.Error("the claim succeeds below a symbolic link")
	}
}

// The server of another program that has replaced the socket keeps its own.
func TestReplacedClaim(t *testing.T) {
	path := newMachine(t).socket
	onlyFiles(t, path)
	c, err := newClaim(path)
	if err != nil {
		t.Fatal(err)
	}
	systest.Remove(t, path)
	theirs := listenAt(t, path)
	if c.held() {
		t.Error("the claim is held")
	}
	c.release()
	theirs.mustServe()
}

// A server that comes between the question and the removal keeps its socket.
func TestRemoveSocket(t *testing.T) {
	path := newMachine(t).socket
	onlyFiles(t, path)
	first := listenAt(t, path)
	theirs := stat(t, path)
	if removeSocket(path, func(string) bool { return false }) {
		t.Error("the socket was removed")
	}
	if !os.SameFile(theirs, stat(t, path)) {
		t.Error("another file is there")
	}
	first.mustServe()
	// Two servers came: the last one stays.
	if removeSocket(path, func(string) bool { listenAt(t, path); return false }) {
		t.Error("the socket was removed")
	}
	if os.SameFile(theirs, stat(t, path)) {
		t.Error("the first socket replaced the second one")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("the directory has %v", left)
	}
}

// waitNote waits until the server's note contains a text, or is empty if the text is.
func waitNote(t *testing.T, s *Server, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		note := s.Note()
		if (note == "") == (text == "") && strings.Contains(note, text) {
			return
		}
	}
	t.Fatalf("the note is %q, want %q", s.Note(), text)
}

// The server leaves the socket to a program that has it, and takes it when it is
// free.
func TestOwner(t *testing.T) {
	m := newMachine(t)
	dir := project(t, "a.txt")
	theirs := listenAt(t, m.socket)
	s := m.start(newBackend(dir).with(filepath.Join(dir, "a.txt")), "1-1.sock")
	waitNote(t, s, "another program (process "+strconv.Itoa(os.Getpid())+") answers Codex CLI's /ide on "+m.socket)
	theirs.mustServe()
	theirs.listener.Close() // its socket stays, as if it were killed
	if !sock.IsPipe(m.socket) {
		// The server looks again immediately only if the process has ended or the socket is
		// new.
		if err := os.Chtimes(m.socket, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	waitNote(t, s, "")
	if got := m.ask(dir); got != "a.txt" {
		t.Errorf("the agent receives %q", got)
	}
	if !sock.IsPipe(m.socket) { // a pipe cannot be replaced
		// Another one comes, and goes.
		systest.Remove(t, m.socket)
		listenAt(t, m.socket)
		waitNote(t, s, "another program")
		systest.Remove(t, m.socket)
		waitNote(t, s, "")
		if got := m.ask(dir); got != "a.txt" {
			t.Errorf("the agent receives %q", got)
		}
	}
	s.Unpublish()
	m.mustBeFree()
}

// Agents ask a server on another socket first. The companion reports it and does not
// touch it.
func TestPreferred(t *testing.T) {
	m := newMachine(t)
	if sock.IsPipe(m.socket) {
		t.Skip("Codex CLI tries no other pipe")
	}
	l := listenAt(t, m.first).listener
	s := m.start(newBackend(project(t)), "1-1.sock")
	waitNote(t, s, "answers Codex CLI's /ide on "+m.first)
	if m.ask(systest.Abs("/elsewhere")) != errNoClient {
		t.Error("older agents find nobody")
	}
	stat(t, m.first)
	l.Close()
	systest.Remove(t, m.first)
	waitNote(t, s, "")
}

// A program that expects a server of its vendor gets the socket's path to itself.
func TestStepBack(t *testing.T) {
	initialize := func(clientType string) string {
		return `{"type":"request","requestId":"1","sourceClientId":"initializing-client","version":0,"method":"initialize",` +
			`"params":{"clientType":"` + clientType + `"}}`
	}
	for name, messages := range map[string][]string{
		"an editor's extension":             {initialize("vscode")},
		"a broadcast of the desktop's app":  {initialize("desktop"), `{"type":"broadcast","sourceClientId":"ID","method":"client-status-changed"}`},
		"a request of the desktop's app":    {initialize("desktop"), `{"type":"request","requestId":"2","sourceClientId":"ID","method":"thread-owner-discovery"}`},
		"a request after one for a context": {initialize("desktop"), `{"type":"request","requestId":"2","sourceClientId":"ID","method":"ide-context"}`, `{"type":"request","requestId":"3","sourceClientId":"ID","method":"thread-owner-discovery"}`},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			s := m.start(newBackend(project(t)), "1-1.sock")
			older := m.dial() // an agent that keeps its connection
			older.send(contextRequest(m.dir))
			older.receive()
			a := m.dial()
			var hello initializeResult
			for _, message := range messages {
				a.send(strings.Replace(message, "ID", hello.ClientID, 1))
				if res := a.receive(); res.Method == methodInitialize && res.Error == "" {
					if err := json.Unmarshal(res.Result, &hello); err != nil || hello.ClientID == "" {
						t.Fatalf("initialize: %+v, %v", res, err)
					}
				}
			}
			a.ended()
			if sock.IsPipe(m.socket) {
				older.ended() // as long as it is open, no other program can serve the pipe
			}
			m.mustBeFree()
			waitNote(t, s, "leaves it free")
			theirs := listenAt(t, m.socket)
			s.Close(t.Context())
			theirs.mustServe()
		})
	}
}

// Only the handshake of the vendor's programs makes the server leave the socket. Any other
// message gets an error or ends its connection, and an agent is answered right after.
func TestJunk(t *testing.T) {
	m := newMachine(t)
	dir := project(t, "a.txt")
	s := m.start(newBackend(dir).with(filepath.Join(dir, "a.txt")), "1-1.sock")
	mustStay := func(t *testing.T) {
		t.Helper()
		if got := m.ask(dir); got != "a.txt" {
			t.Errorf("the agent receives %q", got)
		}
		if note := s.Note(); note != "" {
			t.Errorf("the note is %q", note)
		}
	}
	for name, message := range map[string]string{
		"nothing":           `{}`,
		"null":              `null`,
		"another type":      `{"type":"hello"}`,
		"a broadcast":       `{"type":"broadcast","sourceClientId":"x","method":"client-status-changed"}`,
		"an answer":         `{"type":"response","requestId":"1","resultType":"success","method":"initialize"}`,
		"another method":    `{"type":"request","requestId":"1","sourceClientId":"x","method":"thread-owner-discovery"}`,
		"no kind of client": `{"type":"request","requestId":"1","sourceClientId":"initializing-client","method":"initialize"}`,
		"another kind":      `{"type":"request","requestId":"1","sourceClientId":"initializing-client","method":"initialize","params":{"clientType":"x"}}`,
		"another version":   `{"type":"request","requestId":"1","sourceClientId":"initializing-client","version":7,"method":"initialize","params":{"clientType":"vscode"}}`,
		"another sender":    `{"type":"request","requestId":"1","sourceClientId":"x","method":"initialize","params":{"clientType":"vscode"}}`,
		"no number":         `{"type":"request","sourceClientId":"initializing-client","method":"initialize","params":{"clientType":"vscode"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := m.dial()
			a.send(message)
			if res := a.receive(); res.Error != errNoHandler {
				t.Errorf("the answer is %+v", res)
			}
			a.send(contextRequest(dir)) // the connection stays
			if got := opened(t, a.receive()); got != "a.txt" {
				t.Errorf("the sender receives %q", got)
			}
			mustStay(t)
		})
	}
	// A sender that has no name from the server is not the desktop's app.
	t.Run("a name that is not its own", func(t *testing.T) {
		a := m.dial()
		a.send(`{"type":"request","requestId":"1","sourceClientId":"initializing-client","method":"initialize","params":{"clientType":"desktop"}}`)
		a.receive()
		a.send(`{"type":"broadcast","sourceClientId":"x","method":"client-status-changed"}`)
		if res := a.receive(); res.Error != errNoHandler {
			t.Errorf("the answer is %+v", res)
		}
		mustStay(t)
	})
	for name, bytes := range map[string]string{
		"huge":      "\xff\xff\xff\xff",
		"too long":  "\x01\x00\x01\x00",
		"empty":     "\x00\x00\x00\x00",
		"not JSON":  "\x03\x00\x00\x00abc",
		"a list":    "\x03\x00\x00\x00[1]",
		"types":     "\x0a\x00\x00\x00{\"type\":1}",
		"a browser": "GET / HTTP/1.1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			a := m.dial()
			if _, err := a.conn.Write([]byte(bytes)); err != nil {
				t.Fatal(err)
			}
			a.ended()
			mustStay(t)
		})
	}
}

// Without Codex CLI on the machine there is no socket.
func TestUnwanted(t *testing.T) {
	m := newMachine(t)
	t.Setenv("CODEX_HOME", filepath.Join(m.dir, "none"))
	t.Setenv("PATH", m.dir)
	s := m.start(newBackend(project(t)), "1-1.sock")
	m.mustBeFree()
	if s.Note() != "" {
		t.Errorf("the note is %q", s.Note())
	}
}

// A failure to listen is a note, and no reason not to start.
func TestCannotListen(t *testing.T) {
	m := newMachine(t)
	onlyFiles(t, m.socket)
	m.socket = filepath.Join(m.dir, strings.Repeat("long", 30), "ipc.sock")
	s := m.start(newBackend(project(t)), "1-1.sock")
	if !strings.Contains(s.Note(), "TMPDIR") {
		t.Errorf("the note is %q", s.Note())
	}
}
