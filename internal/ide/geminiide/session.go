package geminiide

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/mcp"
	"pollux/internal/npm"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
	"pollux/internal/termtext"
)

// A Session is one connected CLI. It implements [companion.Session].
type Session struct {
	*mcp.Session
	textRules

	agent  string // the program whose token the client has; "" over stdio
	stdio  bool
	server *Server

	mu      sync.Mutex
	waiting bool              // a context waits to be written
	stream  int               // the number of the stream that carried a context last
	sent    string            // the key of that context
	process companion.Process // the client's
	version string            // that of the package that the process runs; "" if unknown
}

// newSession returns a session of the program with a token, or over stdio.
func (srv *Server) newSession(agent string, stdio bool) (s *Session, err error) {
	s = &Session{agent: agent, stdio: stdio, server: srv}
	s.Session, err = srv.cfg.Companion.NewSession(srv.mcp, s, mcp.Dialect{
		Tools: s.tools(), Connected: s.ContextChanged,
		StreamOpened: func(r *http.Request) {
			s.locate(r) // the stream's connection stays open meanwhile
			s.queueContext()
		},
	})
	return s, err
}

// open makes a session for a CLI that has sent initialize over HTTP.
func (srv *Server) open(r *http.Request) (*mcp.Session, error) {
	s, err := srv.newSession(srv.agentOf(r), false)
	if err != nil {
		return nil, err
	}
	return s.Session, nil
}

// ServeConn serves one client over a byte stream of newline-delimited JSON
// (the CLI's stdio transport, carried by `pollux connect`) until it ends.
func (srv *Server) ServeConn(conn io.ReadWriteCloser) error {
	s, err := srv.newSession("", true)
	if err != nil {
		conn.Close()
		return err
	}
	s.Serve(mcp.Lines(conn, mcp.MaxMessage))
	return nil
}

// Client implements [companion.Session].
func (s *Session) Client() (name, version string) {
	name, version = s.ClientInfo()
	name, version = agentName(name, version, s.agent)
	s.mu.Lock()
	defer s.mu.Unlock()
	return name, cmp.Or(version, s.version)
}

// placeholder is the version that Qwen Code sends instead of its real one. Gemini
// CLI 0.20 does so, too.
const placeholder = "1.0.0"

// agentName returns a client's name, as people know it, and its version. The
// CLIs send the name of their transport instead of their name, so their token
// identifies them. Over stdio, without a token, the version does. A client
// that sends no name gets one in the same way.
func agentName(name, version, agent string) (string, string) {
	switch name {
	case "", "streamable-http-client", "stdio-client":
	default:
		return shown(name), shown(version)
	}
	if agent == "" {
		agent = geminiCLI
		if version == placeholder {
			agent = qwenCode
		}
	}
	if version == placeholder {
		version = ""
	}
	return agent, shown(version)
}

// Refuses implements [companion.TextRules].
func (s *Session) Refuses(text, _, proposed string) string {
	if text != "" || proposed == "" {
		return ""
	}
	name, _ := s.Client()
	return name + " ignores an empty text and would write its own proposal. " +
		"Reject the change and empty the file yourself."
}

// shown returns a name that is safe to show.
func shown(name string) string {
	if line := termtext.Line(name, attach.MaxName); line != "" || name == "" {
		return line
	}
	return "?"
}

// Transport implements [companion.Session].
func (s *Session) Transport() string {
	if s.stdio {
		return "stdio"
	}
	return "http"
}

// Process implements [companion.Session].
func (s *Session) Process() companion.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// locate finds the process that has sent a request, and its version. Over stdio they stay unknown,
// since a relay is at the other end.
func (s *Session) locate(r *http.Request) {
	if s.Process().PID != 0 {
		return
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	pid := sock.PeerProcess(local, r.RemoteAddr)
	if pid == 0 {
		return
	}
	process := companion.Process{PID: pid, Dir: proc.WorkingDir(pid), Terminal: proc.Terminal(pid)}
	version := packageVersion(pid, packages[s.agent])
	s.mu.Lock()
	s.process, s.version = process, version
	s.mu.Unlock()
	s.server.cfg.Backend.Changed(s)
}

// packages are the npm packages of the agents that may send [placeholder].
var packages = map[string]string{geminiCLI: GeminiPackage, qwenCode: QwenPackage}

// packageVersion returns the version of the npm package with a name that a process runs, or
// "".
func packageVersion(pid int, name string) string {
	if name == "" {
		return ""
	}
	args, _ := proc.CommandLine(pid)
	for _, arg := range args {
		if !filepath.IsAbs(arg) {
			continue
		}
		if version := npm.Version(arg, name); version != "" {
			return shown(version)
		}
	}
	return ""
}

// Resolve implements [companion.Session] with a notification, which waits for an event
// stream. It sends none for a superseded proposal: notifications name only the path, and
// the CLI would take it for the answer to the new proposal. It also sends none for a
// proposal that the user answers in the terminal.
func (s *Session) Resolve(p companion.Proposal, o companion.Outcome, done func(error)) {
	switch {
	case o.Superseded || o.Failed:
		go done(nil)
	case o.Accepted:
		s.Notify(MethodDiffAccepted, DiffAccepted{FilePath: p.Path, Content: o.Text}, len(o.Text), done)
	default:
		s.Notify(MethodDiffRejected, DiffRejected{FilePath: p.Path}, 0, done)
	}
}

// ContextChanged implements [companion.Session]. At most one message waits.
func (s *Session) ContextChanged() {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = true
	s.mu.Unlock()
	if !waiting {
		s.queueContext()
	}
}

// queueContext queues the context as it is when it can be written. A stream that has it already
// does not carry it again.
func (s *Session) queueContext() {
	s.NotifyLatest(MethodContextUpdate, func(stream int) any {
		s.mu.Lock()
		s.waiting = false
		s.mu.Unlock()
		now := wireContext(s.server.cfg.Backend.Context())
		key := now.key()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stream == stream && s.sent == key {
			return nil
		}
		s.stream, s.sent = stream, key
		return now
	})
}
