// Package claudeide lets Claude Code and opencode use a companion: MCP over a
// WebSocket on loopback, found through a lock file in ~/.claude/ide.
//
// No contract is published. The package follows what Claude Code 2.1.332 and
// opencode 1.18.33 do; docs/CLAUDE-CODE.md says what users notice of it.
package claudeide

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/crash"
	"pollux/internal/gate"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
	"pollux/internal/sys/sock"
	"pollux/internal/termtext"
)

// A Config configures a [Server].
type Config struct {
	attach.Companion
	// Dir is the directory for the lock file; [Dir] if empty.
	Dir string
	// Roots are the workspace's directories. If the server is killed while an agent is
	// connected, the next one for the same roots has the same port and token: an agent
	// comes back to these only. See endpoint.
	Roots []string
	// State is the directory that keeps ports and tokens meanwhile; a directory in
	// [disk.StateDir] if empty.
	State string
}

// EnvNames are the variables that [Server.AddEnv] may add.
//
// CLAUDE_CODE_SSE_PORT, which names a server's port, is not one of them: opencode
// connects with it, but without the token, and never reads the lock.
var EnvNames = []string{EnvAutoConnect, envServerPort}

const (
	// EnvAutoConnect makes Claude Code connect automatically, or keeps it from
	// doing so.
	EnvAutoConnect = "CLAUDE_CODE_AUTO_CONNECT_IDE"
	// envServerPort has the server's port for `pollux run`, under a name that no
	// agent reads: editors set it in their terminals.
	envServerPort = "POLLUX_CLAUDE_PORT"
	// EnvPort leads Claude Code to one server, regardless of the server's folders.
	EnvPort = "CLAUDE_CODE_SSE_PORT"
	// EnvOpencodePort is another name of [EnvPort], for opencode.
	EnvOpencodePort = "OPENCODE_EDITOR_SSE_PORT"

	// TokenHeader has the token, and Subprotocol is that of the WebSocket.
	TokenHeader = "X-Claude-Code-Ide-Authorization"
	Subprotocol = "mcp"
)

// A Server is a companion's server for Claude Code and opencode. It listens from
// [New] on; connections are served once [Server.Serve] runs.
//
// Lock order: the lock of blocking.Server, the companion's lock, Server.mu, Session.mu. The last
// two are held neither while a method of the Backend runs nor during I/O.
type Server struct {
	*blocking.Server
	cfg   Config
	port  int
	token string
	old   bool      // others may know the token: only programs of this user are served
	state string    // the file that keeps the endpoint; "" if none does
	kept  time.Time // when watched wrote or touched it last; zero if it is not there

	mu   sync.Mutex
	note string
}

// New returns a server that listens on 127.0.0.1, on the port that the last server
// for the same roots had, or on another one.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, token: rand.Text()}
	if sock.KnowsPeers {
		s.state = s.statePath()
	}
	l, err := s.listen()
	if err != nil {
		return nil, err
	}
	s.Server = blocking.NewServer(blocking.Config{
		Companion: cfg.Companion, Agent: "Claude Code", Names: names, Dir: cfg.Dir, DefaultDir: Dir,
		Lock: s.lock, Watched: s.watched, Listener: l, Handler: http.HandlerFunc(s.serveHTTP),
	})
	return s, nil
}

// serveHTTP serves a session on a connection, once it has refused web pages, which
// always send an Origin, and clients without the token.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	defer crash.Report()
	if len(r.Header.Values("Origin")) > 0 {
		http.Error(w, "requests from web pages are not served", http.StatusForbidden)
		return
	}
	if !gate.SameSecret(r.Header.Get(TokenHeader), s.token) {
		http.Error(w, "the token is missing or wrong: it is in the lock file", http.StatusUnauthorized)
		return
	}
	if s.old && !gate.OwnUser(r.Context()) {
		http.Error(w, "the token is of a companion that crashed: other users may know it", http.StatusForbidden)
		return
	}
	gate.Authenticated(r.Context())
	if !s.Backend.Shows() {
		http.Error(w, "no editor that shows changes is attached", http.StatusServiceUnavailable)
		return
	}
	session, err := s.newSession(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	// Accept repeats the subprotocol only if the client offers it: opencode does
	// not.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}})
	if err != nil { // Accept has answered
		session.Discard()
		return
	}
	s.Check()
	go func() { // the HTTP server would catch a panic
		defer crash.Report()
		defer s.Check()
		session.Serve(mcp.WebSocket(ws))
	}()
}

// Publish writes the lock file, unless it must not be there now: see
// [Server.ViewsChanged].
func (s *Server) Publish(roots, _ []string) error {
	s.Server.Publish(strconv.Itoa(s.port), roots)
	return nil
}

// AddEnv adds the variable that makes Claude Code connect automatically, and the
// one for [ClaudeEnv].
func (s *Server) AddEnv(env map[string]string) {
	env[EnvAutoConnect] = "true"
	env[envServerPort] = strconv.Itoa(s.port)
}

// ViewsChanged announces that [companion.Companion.Shows] may have changed. While nothing shows
// changes, the server has no lock file and no sessions: Claude Code shows a change in
// its terminal only if it is not connected.
func (s *Server) ViewsChanged() { s.Check() }

// watched looks after the endpoint, and ends the sessions when nothing shows changes.
func (s *Server) watched() {
	s.keep()
	if !s.Backend.Shows() {
		s.endSessions()
	}
}

// flushTimeout is how long an agent may take to receive the last answers.
const flushTimeout = 2 * time.Second

// endSessions ends the sessions when nothing shows changes any more. The companion has
// just rejected the changes that waited: the agents receive that first. Close does not
// cut this short, since the companion often ends with its last view; the sessions that
// Close ends are no longer waited for.
func (s *Server) endSessions() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	s.MCP.End(ctx)
}

// lock returns the lock file, or nil if there must be none: see [blocking.Config].
func (s *Server) lock(folders []string) any {
	if !s.Backend.Shows() || !blocking.Wanted(s.Dir, exec.LookPath, ClaudeCommand, opencode) {
		s.setNote("")
		return nil
	}
	lock := Lock{
		PID: os.Getpid(), WorkspaceFolders: inSpelling(folders, Spelling()), IDEName: ideName(s.Editor),
		Transport: Transport, RunningInWindows: runtime.GOOS == "windows", AuthToken: s.token, Pollux: s.Mark,
	}
	other, yield := rival(s.Dir, s.port, lock)
	if !yield {
		s.setNote("")
		return lock
	}
	// An agent in a folder that two locks have connects to neither. Without a
	// folder it connects only if the port is in its environment.
	lock.WorkspaceFolders = []string{}
	name := cmp.Or(termtext.Line(other.Title(), attach.MaxName), "another program")
	if other.PID != 0 {
		name += fmt.Sprintf(" (process %d)", other.PID)
	}
	advice := "end that program, or start Claude Code with `pollux run --attach -- claude`"
	if other.Pollux != nil {
		advice = "to connect it here, start it with `pollux run --attach -- claude`"
	}
	if s.setNote(name + " has the same folder, and Claude Code connects to it unless `pollux run` starts it: " + advice) {
		s.Log.Warn("another program has the same folder: Claude Code connects to that one", "program", name)
	}
	return lock
}

// setNote sets what Note returns. It reports whether that has changed.
func (s *Server) setNote(note string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.note != note
	s.note = note
	return changed
}

// Note returns why agents connect to another program instead, and what to do; "" if
// they do not.
func (s *Server) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.note
}

// Close is that of [blocking.Server]. The next server has another port and token: until it
// listens, another user can.
func (s *Server) Close(ctx context.Context) error {
	err := s.Server.Close(ctx)
	if s.state != "" {
		s.forget()
	}
	return err
}
