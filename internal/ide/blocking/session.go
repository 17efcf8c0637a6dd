// Package blocking serves agents whose call that shows a change returns only after the user has
// decided. It holds the calls that wait, and sends the message with the context. An agent's
// package adds the names and texts of its tools.
package blocking

import (
	"context"
	"net/http"
	"sync"
	"time"

	"pollux/internal/companion"
	"pollux/internal/ide/mcp"
	"pollux/internal/outbox"
)

// A Backend is the companion that a server belongs to.
type Backend interface {
	mcp.Backend
	Propose(ctx context.Context, s companion.Session, p companion.Proposal) error
	Withdraw(ctx context.Context, s companion.Session, path string) (text string, err error)
	Context() companion.Context
	Roots() []string
}

// A Config configures a [Session].
type Config struct {
	Server  *mcp.Server
	Backend Backend
	Dialect mcp.Dialect // without StreamOpened
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
	cfg Config

	changed outbox.Signal // the context has changed
	dropped outbox.Signal // the agent may have dropped the context: send it again
	between chan func()   // of Between

	// The companion's lock comes before mu, which is not held while a method of the Backend runs.
	mu      sync.Mutex
	reviews []*review // the undecided ones, the oldest first
}

// NewSession returns a session, unless the server has too many.
func NewSession(cfg Config) (s *Session, err error) {
	s = &Session{cfg: cfg, changed: outbox.NewSignal(), dropped: outbox.NewSignal(), between: make(chan func())}
	dialect := cfg.Dialect
	dialect.StreamOpened = func(*http.Request) { s.Refresh() } // a stream first carries the context
	dialect.Connected = func() {
		s.Go(s.sendContext)
		if cfg.Dialect.Connected != nil {
			cfg.Dialect.Connected()
		}
	}
	s.Session, err = cfg.Server.NewSession(dialect)
	return s, err
}
