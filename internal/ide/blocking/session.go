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
	// Delays, Shift and SkipNothing are those of [Feed]; no shift if nil.
	Delays      []time.Duration
	Shift       func() int
	SkipNothing bool
	OnPanic     mcp.OnPanic
	// Messages encodes the context for all sessions of a server.
	Messages *Messages
}

// A Session is an MCP session with the proposals that wait for the user, and the feed of the
// context. The session of an agent embeds it.
type Session struct {
	*mcp.Session
	Feed *Feed

	backend Backend
	self    companion.Session

	// The companion's lock comes before mu, which is not held while a method of the Backend runs.
	mu      sync.Mutex
	reviews []*review // the undecided ones, the oldest first
}

// NewSession returns a session, unless the server has too many.
func NewSession(cfg Config) (*Session, error) {
	s := &Session{backend: cfg.Backend, self: cfg.Dialect.Self}
	s.Feed = NewFeed(Feed{
		Backend: cfg.Backend, Delays: cfg.Delays, Shift: cfg.Shift, SkipNothing: cfg.SkipNothing, OnPanic: cfg.OnPanic,
		Send: func(m Selection) error {
			if s.Muted() {
				return nil // the next stream begins with the context as it is then
			}
			params, err := cfg.Messages.encode(m)
			if err != nil {
				return err
			}
			return s.Send(s.Ctx, MethodSelection, params)
		},
	})
	cfg.Dialect.StreamOpened = func(*http.Request) { s.Feed.Refresh() } // a stream first carries the context
	connected := cfg.Dialect.Connected
	cfg.Dialect.Connected = func() {
		s.Go(func() { s.Feed.Run(s.Ctx) })
		if connected != nil {
			connected()
		}
	}
	var err error
	s.Session, err = cfg.Server.NewSession(cfg.Dialect)
	return s, err
}

// ContextChanged implements [companion.Session].
func (s *Session) ContextChanged() { s.Feed.Changed() }
