package claudeide

import (
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/ide/blocking"
)

// A Session is one connected agent. It implements [companion.Session].
//
// A client that does not read, such as a suspended one, blocks the writes to it and
// nothing else. They have no deadline; the end of the session closes the connection
// under them.
type Session struct {
	*blocking.Session
	textRules

	server *Server
	ws     *websocket.Conn // set before serve, like the next two
	local  net.Addr        // of the connection
	remote string

	mu       sync.Mutex
	pid      int    // the agent's process; 0 if it is not known
	dir      string // its working directory
	terminal string // that it runs in
	checks   checks
}

// The names of the agents, as people know them, by the name that they send.
var names = map[string]string{"claude-code": "Claude Code", opencode: "opencode"}

const opencode = "opencode"

// refreshDelays are the times after which the context is sent again. An agent that
// has just connected, or just sent a prompt, silently drops what comes too early.
var refreshDelays = []time.Duration{0, 400 * time.Millisecond, 1500 * time.Millisecond}

func (s *Server) newSession() *Session {
	session := &Session{server: s}
	session.Session = blocking.NewSession(blocking.SessionConfig{
		Backend: s.cfg.Backend, Log: s.cfg.Log, OnPanic: s.cfg.OnPanic, Self: session,
		Implementation: mcp.Implementation{Name: "pollux", Title: s.cfg.Editor.DisplayName, Version: s.cfg.Version},
		Names:          names, Delays: refreshDelays, Shift: lineShift, Connected: session.locate, Messages: &s.messages,
	})
	return session
}

// lineShift returns what to add to the numbers of lines: opencode shows them as they
// are, while Claude Code adds 1.
func lineShift(client string) int {
	if client == opencode {
		return 1
	}
	return 0
}

// serve serves the agent until the connection or the session ends.
func (s *Session) serve() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-s.Ctx.Done()
		s.ws.CloseNow()
	}()
	s.Serve(conn{s}, s.addTools)
	<-closed
	s.checks.end(s.Ctx, s.server.cfg.OnPanic)
}

// placeholder is the version that opencode sends instead of its own.
const placeholder = "0.0.0"

// Client implements [companion.Session].
func (s *Session) Client() (name, version string) {
	name, version = s.Session.Client()
	if version == placeholder {
		version = ""
	}
	return name, version
}

// Limits implements [companion.LimitedSession].
func (s *Session) Limits() string {
	if name, _ := s.Client(); name == names[opencode] {
		return "no review: it asks about changes in its own terminal"
	}
	return ""
}

// Transport implements [companion.Session].
func (s *Session) Transport() string { return "websocket" }
