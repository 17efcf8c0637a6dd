// Package blocking serves agents that find a companion through a lock file, and whose call that
// shows a change returns only after the user has decided. It listens, looks after the lock file,
// holds the calls that wait, and sends the message with the context. An agent's package adds its
// address, the fields of the lock file, and the names and texts of its tools.
package blocking

import (
	"net/http"
	"sync"
	"time"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/mcp"
	"pollux/internal/outbox"
	"pollux/internal/termtext"
)

// A Dialect describes what an agent's package adds to a session.
type Dialect struct {
	mcp.Dialect // without StreamOpened and Disconnected
	// Self is the session as the companion receives it. It embeds the [Session].
	Self companion.Session
	// Shift returns the shift of [NewSelection]; no shift if nil.
	Shift func() int
	// Delays are the times after which the context is sent again, because the agent
	// may have dropped it. The first one is 0.
	Delays []time.Duration
	// SkipNothing is set for an agent that shows something odd if a message says that
	// nothing is open before one has named a file.
	SkipNothing bool
}

// A Session is an MCP session that holds the proposals that wait for the user, and sends the
// context. The session of an agent embeds it.
type Session struct {
	*mcp.Session
	dialect Dialect
	backend attach.Backend
	names   map[string]string

	changed outbox.Signal // the context has changed
	dropped outbox.Signal // the agent may have dropped the context: send it again
	between chan func()   // of Between

	// The companion's lock comes before mu, which is not held while a method of the Backend runs.
	mu      sync.Mutex
	reviews []*review // the undecided ones, the oldest first
}

// NewSession returns a session, unless the server has too many.
func (srv *Server) NewSession(d Dialect) (s *Session, err error) {
	s = &Session{
		dialect: d, backend: srv.Backend, names: srv.cfg.Names,
		changed: outbox.NewSignal(), dropped: outbox.NewSignal(), between: make(chan func()),
	}
	connected := d.Connected
	d.StreamOpened = func(*http.Request) { s.Refresh() } // a stream first carries the context
	d.Connected = func() {
		s.Go(s.sendContext)
		if connected != nil {
			connected()
		}
	}
	s.Session, err = srv.Companion.NewSession(srv.MCP, d.Self, d.Dialect)
	return s, err
}

// Client implements [companion.Session].
func (s *Session) Client() (name, version string) {
	sent, version := s.ClientInfo()
	if name = s.names[sent]; name == "" {
		name = termtext.Line(sent, attach.MaxName)
	}
	return name, termtext.Line(version, attach.MaxName)
}
