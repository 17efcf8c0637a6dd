// Package claudeide lets Claude Code and opencode use a companion: MCP over a
// WebSocket on loopback, found through a lock file in ~/.claude/ide.
//
// There is no published contract. The package follows what Claude Code 2.1.330 and
// opencode 1.18.33 do; docs/CLAUDE.md has the findings.
package claudeide

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/gate"
	"pollux/internal/ide/blocking"
	"pollux/internal/ide/lockfile"
	"pollux/internal/outbox"
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// A Backend is the companion that the server belongs to.
type Backend interface {
	blocking.Backend
	// Acted notes that the agent did something.
	Acted(s companion.Session)
	// Changed announces another result of the session's Process.
	Changed(s companion.Session)
	Diagnostics(ctx context.Context, path string) ([]editor.FileDiagnostics, error)
	BeforeWrite(ctx context.Context, path string) (
		files []editor.FileDiagnostics, checked func(context.Context), err error)
	// Shows reports whether the user can review a change somewhere.
	Shows() bool
}

// A Config configures a [Server].
type Config struct {
	Backend Backend
	Log     *slog.Logger // none if nil
	// Version is the companion's version.
	Version string
	// Editor names the companion to the agent's user.
	Editor editor.Info
	// Dir is the directory for the lock file; [Dir] if empty.
	Dir string
	// Roots are the workspace's directories. The server that starts for the same
	// ones next has the same port and token, if the port is free: an agent comes
	// back to these only.
	Roots []string
	// State is the directory that keeps ports and tokens; a directory in
	// [sys.StateDir] if empty.
	State string
	// OnPanic is called before a panic ends the process.
	OnPanic blocking.OnPanic
}

// EnvNames are the variables that [Server.AddEnv] may add.
//
// CLAUDE_CODE_SSE_PORT, which names a server's port, is not one of them: opencode
// connects with it, but without the token, and never reads the lock.
var EnvNames = []string{EnvAutoConnect, envServerPort}

const (
	// EnvAutoConnect makes Claude Code connect by itself, or keeps it from that.
	EnvAutoConnect = "CLAUDE_CODE_AUTO_CONNECT_IDE"
	// envServerPort has the server's port for `pollux run`, under a name that no
	// agent reads: editors set it in their terminals.
	envServerPort = "POLLUX_CLAUDE_PORT"
	// EnvPort leads Claude Code to one server, whatever its folders are.
	EnvPort = "CLAUDE_CODE_SSE_PORT"
	// EnvOpencodePort is another name of [EnvPort], for opencode.
	EnvOpencodePort = "OPENCODE_EDITOR_SSE_PORT"

	tokenHeader = "X-Claude-Code-Ide-Authorization"
	subprotocol = "mcp"

	// maxMessage bounds a message in bytes: an agent sends whole files.
	maxMessage = 256 << 20
	// maxSessions is far above what a person runs.
	maxSessions = 64
)

// A Server is a companion's server for Claude Code and opencode. It listens from
// [New] on; connections are served once [Server.Serve] runs.
//
// Lock order: Server.publishing, the companion's lock, Server.mu, Session.mu. The last
// two are not held while a method of the Backend runs, nor during I/O.
type Server struct {
	cfg      Config
	http     *http.Server
	listener net.Listener
	port     int
	token    string
	gate     *gate.Gate
	running  sync.WaitGroup  // the HTTP server, the sessions, and watch
	ctx      context.Context // ends with watch
	stop     context.CancelFunc
	check    outbox.Signal // the lock may have to change
	messages blocking.Messages

	publishing sync.Mutex      // held while the lock file changes
	writer     lockfile.Writer // of the lock file; guarded by publishing

	mu       sync.Mutex
	sessions map[*Session]bool
	closed   bool
	lock     Lock   // with all folders
	path     string // of the lock file; empty until Publish and from Unpublish on
	rival    string // what the lock yields to, for people; empty if nothing
}

// New returns a server that listens on 127.0.0.1, on the port that the last server
// for the same roots had, or on another one.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, token: rand.Text(), gate: gate.New(0), check: outbox.NewSignal(), sessions: make(map[*Session]bool),
		writer: lockfile.Writer{Log: cfg.Log, Agent: "Claude Code"},
	}
	if s.cfg.Dir == "" {
		dir, err := Dir()
		if err != nil { // other agents may not need it
			s.cfg.Log.Warn("Claude Code will not find this companion", "err", err)
		}
		s.cfg.Dir = dir
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serveHTTP), ConnContext: s.gate.Enter, ConnState: s.gate.State,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// An endpoint is what an agent keeps of a server: it tries to come back to it for
// about 16 s.
type endpoint struct {
	Port  int    `json:"port"`
	Token string `json:"token"`
	// PID is the process that listens, or listened, on the port.
	PID int `json:"pid"`
}

// listen listens on the port of the last server for the same roots, with its token.
// If the port is taken, or there was none, both are new: a program that has taken the
// port may have received the token from an agent that came back.
func (s *Server) listen() (err error) {
	state := s.statePath()
	last, err := readEndpoint(state)
	if err == nil {
		if s.listener, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(last.Port)); err == nil {
			s.token = last.Token
		} else if last.PID != os.Getpid() && sys.Alive(last.PID) {
			state = "" // it belongs to a server that runs
		}
	}
	if s.listener == nil {
		if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("cannot listen on loopback: %w", err)
		}
	}
	s.port = s.listener.Addr().(*net.TCPAddr).Port
	if state == "" {
		return nil
	}
	data, err := json.Marshal(endpoint{s.port, s.token, os.Getpid()})
	if err == nil {
		err = sys.PrivateDir(filepath.Dir(state))
	}
	if err == nil {
		err = sys.WriteFile(state, data)
	}
	if err != nil {
		s.cfg.Log.Warn("Claude Code will not find this companion again if it restarts", "err", err)
	}
	return nil
}

// readEndpoint reads a file that only the user can have written.
func readEndpoint(path string) (e endpoint, err error) {
	if path == "" {
		return e, os.ErrNotExist
	}
	dir := filepath.Dir(path)
	info, err := os.Lstat(dir)
	if err != nil {
		return e, err
	}
	if !info.IsDir() || !sys.Own(dir, info) || !sys.Private(dir, info) {
		return e, errors.New("the directory is not private")
	}
	data, err := sys.ReadFile(path, lockfile.MaxSize)
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err == nil && (e.Port < 1 || e.Port > 65535 || e.Token == "") {
		err = errors.New("it has no port or no token")
	}
	return e, err
}

// statePath returns the file that keeps the port and token, or "".
func (s *Server) statePath() string {
	dir := s.cfg.State
	if dir == "" {
		state, err := sys.StateDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(state, "claude")
	}
	sum := sha256.Sum256([]byte(strings.Join(s.cfg.Roots, "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")
}

// Port returns the port that the server listens on.
func (s *Server) Port() int { return s.port }

// Serve serves connections in the background until [Server.Close].
func (s *Server) Serve() {
	s.running.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("the server for Claude Code stopped", "err", err)
		}
	})
	s.running.Go(s.watch)
}

// serveHTTP serves a session on a connection, once it has refused web pages, which
// always send an Origin, and clients without the token.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.cfg.OnPanic.Report()
	if len(r.Header.Values("Origin")) > 0 {
		http.Error(w, "requests from web pages are not served", http.StatusForbidden)
		return
	}
	if !gate.SameSecret(r.Header.Get(tokenHeader), s.token) {
		http.Error(w, "the token is missing or wrong: it is in the lock file", http.StatusUnauthorized)
		return
	}
	gate.Authenticated(r.Context())
	if !s.cfg.Backend.Shows() {
		http.Error(w, "no editor that shows changes is attached", http.StatusServiceUnavailable)
		return
	}
	session := s.newSession()
	if !s.add(session) {
		http.Error(w, "too many sessions, or the companion is shutting down", http.StatusServiceUnavailable)
		return
	}
	// Accept repeats the subprotocol only if the client offers it: opencode does
	// not.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}})
	if err != nil { // Accept has answered
		session.End()
		s.remove(session)
		return
	}
	ws.SetReadLimit(maxMessage)
	session.ws = ws
	session.local, _ = r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	session.remote = r.RemoteAddr
	go func() { // the HTTP server would catch a panic
		defer s.cfg.OnPanic.Report()
		defer s.remove(session)
		session.serve()
	}()
}

func (s *Server) add(session *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.sessions) >= maxSessions {
		return false
	}
	s.sessions[session] = true
	s.running.Add(1)
	return true
}

func (s *Server) remove(session *Session) {
	s.mu.Lock()
	delete(s.sessions, session)
	s.mu.Unlock()
	s.running.Done()
}

func (s *Server) all() (all []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.sessions {
		all = append(all, session)
	}
	return all
}

// Publish writes the lock file, unless it must not be there now: see
// [Server.ViewsChanged]. A failure is no reason not to start, since the user may not
// have these agents.
func (s *Server) Publish(roots, _ []string) error {
	if s.cfg.Dir == "" {
		return nil
	}
	name := s.cfg.Editor.DisplayName
	if name == "" {
		name = "Pollux"
	}
	lock := Lock{
		PID: os.Getpid(), WorkspaceFolders: inSpelling(lockfile.Folders(roots), Spelling()), IDEName: name, Transport: transport,
		RunningInWindows: runtime.GOOS == "windows", AuthToken: s.token,
		Pollux: lockfile.NewMark(),
	}
	s.mu.Lock()
	s.lock = lock
	s.path = filepath.Join(s.cfg.Dir, strconv.Itoa(s.port)+lockfile.Ext)
	s.mu.Unlock()
	prune(s.cfg.Dir)
	s.update()
	return nil
}

// SetRoots publishes other workspace roots.
func (s *Server) SetRoots(roots []string) error {
	folders := inSpelling(lockfile.Folders(roots), Spelling())
	s.mu.Lock()
	s.lock.WorkspaceFolders = folders
	s.mu.Unlock()
	s.update()
	return nil
}

// AddEnv adds the variable with which Claude Code connects without being asked to,
// and the one for [ClaudeEnv].
func (s *Server) AddEnv(env map[string]string) {
	env[EnvAutoConnect] = "true"
	env[envServerPort] = strconv.Itoa(s.port)
}

// ViewsChanged announces that [Backend.Shows] may have changed. While nothing shows
// changes, the server has no lock file and no sessions: Claude Code shows a change in
// its terminal only if it is not connected.
func (s *Server) ViewsChanged() { s.check.Set() }

// watch looks after the lock, and ends the sessions when nothing shows changes.
func (s *Server) watch() {
	defer s.cfg.OnPanic.Report()
	lockfile.Watch(s.ctx, s.check, func() {
		s.update()
		if !s.cfg.Backend.Shows() {
			s.endSessions()
		}
	})
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
	sessions := s.all()
	flush(ctx, sessions)
	for _, session := range sessions {
		session.End()
	}
}

// flush waits until the agents have the answers to the decided changes, for as long as
// ctx allows.
func flush(ctx context.Context, sessions []*Session) {
	for _, session := range sessions {
		session.Calls.Flush(ctx)
	}
}

// update writes or removes the lock file.
func (s *Server) update() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	lock, path := s.lock, s.path
	s.mu.Unlock()
	if path == "" {
		return
	}
	if !s.cfg.Backend.Shows() || !lockfile.Wanted(s.cfg.Dir, exec.LookPath, ClaudeCommand, OpencodeCommand) {
		removeLock(path, s.token)
		s.setRival("")
		return
	}
	other, yield := rival(s.cfg.Dir, s.port, lock)
	note := ""
	if yield {
		// An agent in a folder that two locks have connects to neither. Without a
		// folder it connects only if the port is in its environment.
		lock.WorkspaceFolders = []string{}
		note = termtext.Line(other.IDEName, blocking.MaxName)
		if note == "" {
			note = "another program"
		}
		if other.PID != 0 {
			note += fmt.Sprintf(" (process %d)", other.PID)
		}
	}
	s.writer.Write(path, lock)
	if s.setRival(note) && yield {
		s.cfg.Log.Warn("another program has the same folder: Claude Code connects to that one", "program", note)
	}
}

// setRival reports whether the rival is another one than before.
func (s *Server) setRival(note string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.rival != note
	s.rival = note
	return changed
}

// Note returns why agents connect to another program instead, and what to do; "" if
// they do not.
func (s *Server) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rival == "" {
		return ""
	}
	return s.rival + " has the same folder, and Claude Code connects to it: " +
		"end that program, or start Claude Code with `pollux run --attach -- claude`"
}

// Unpublish removes the lock file.
func (s *Server) Unpublish() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	path := s.path
	s.path = ""
	s.mu.Unlock()
	if path != "" {
		removeLock(path, s.token)
	}
}

// Close waits until the agents have the answers to the decided changes, for as long as
// ctx allows, and ends all sessions.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	sessions := s.all()
	flush(ctx, sessions)
	for _, session := range sessions {
		session.End()
	}
	err := s.http.Close()
	s.listener.Close() // even if Serve was never called
	s.running.Wait()
	return err
}
