package claudeide

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"pollux/internal/companion"
	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
)

// A Session is one connected agent. It implements [companion.Session].
type Session struct {
	*blocking.Session
	textRules

	server *Server
	local  net.Addr // of the connection
	remote string

	mu      sync.Mutex
	process companion.Process // what is known of it
}

// The names of the agents, as people know them, by the name that they send.
var names = map[string]string{"claude-code": "Claude Code", opencode: "opencode"}

// opencode is also the name of its command.
const opencode = "opencode"

// refreshDelays are the times after which the context is sent again. An agent that
// has just connected, or just sent a prompt, silently drops what comes too early.
var refreshDelays = []time.Duration{0, 400 * time.Millisecond, 1500 * time.Millisecond}

func (s *Server) newSession(r *http.Request) (session *Session, err error) {
	session = &Session{server: s, remote: r.RemoteAddr}
	session.local, _ = r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	session.Session, err = s.NewSession(blocking.Dialect{
		Dialect: mcp.Dialect{
			Tools: session.tools(), Received: session.received,
			Connected: func() { session.Go(session.locate) },
		},
		Self: session, Delays: refreshDelays, Shift: session.lineShift,
	})
	return session, err
}

// received handles the notification that names an agent's process. An agent sends tools/list
// among its last messages while it connects.
func (s *Session) received(method string, params json.RawMessage) {
	switch method {
	case "ide_connected":
		s.claim(params)
	case "tools/list":
		s.Refresh()
	}
}

// lineShift returns what to add to the numbers of lines: opencode shows them as they
// are, while Claude Code adds 1.
func (s *Session) lineShift() int {
	if s.isOpencode() {
		return 1
	}
	return 0
}

// opencode sends placeholder instead of its version.
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
	if s.isOpencode() {
		return "no review: it asks about changes in its own terminal"
	}
	return ""
}

// Transport implements [companion.Session].
func (s *Session) Transport() string { return "websocket" }
