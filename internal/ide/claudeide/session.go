package claudeide

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
	"pollux/internal/outbox"
	"pollux/internal/termtext"
)

var errUndelivered = errors.New("the agent ended before it received the outcome")

// A Session is one connected agent. It implements [companion.Session].
//
// The MCP SDK serves the tools. It cannot send custom notifications, so the session
// writes them to the transport itself, from one goroutine.
type Session struct {
	textRules

	server *Server
	since  time.Time
	ws     *websocket.Conn
	mcp    *mcp.ServerSession
	ctx    context.Context // ends with the session
	cancel context.CancelFunc

	wake    outbox.Signal // the context has changed
	refresh outbox.Signal // the agent may have dropped the context: send it again

	mu      sync.Mutex
	calls   map[string]jsonrpc.ID // of openDiff, by tab, until a review takes it
	reviews []*review             // the oldest first
	idle    chan struct{}         // closed when there is no review; nil unless flush waits
}

// A review is a call of openDiff whose answer has not been written.
type review struct {
	proposal companion.Proposal
	tab      string
	id       jsonrpc.ID
	outcome  chan companion.Outcome // holds at most one
	decided  bool                   // it has an outcome, or it was withdrawn
	done     func(error)            // reports that the agent has the answer; may be nil
}

func (s *Server) newSession(ws *websocket.Conn) *Session {
	session := &Session{
		server: s, since: time.Now(), ws: ws, calls: make(map[string]jsonrpc.ID),
		wake: outbox.NewSignal(), refresh: outbox.NewSignal(),
	}
	session.ctx, session.cancel = context.WithCancel(s.ctx)
	return session
}

// serve serves the agent until the connection or the session ends.
func (s *Session) serve() {
	defer s.ws.CloseNow()
	defer s.cancel()
	self := &mcp.Implementation{Name: "pollux", Title: s.server.cfg.Editor.DisplayName, Version: s.server.cfg.Version}
	initialized := make(chan struct{})
	server := mcp.NewServer(self, &mcp.ServerOptions{
		Capabilities:       &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		InitializedHandler: func(context.Context, *mcp.InitializedRequest) { close(initialized) },
	})
	s.addTools(server)
	var err error
	if s.mcp, err = server.Connect(s.ctx, transportOf{s}, nil); err != nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.mcp.Wait()
	}()
	select {
	case <-initialized:
		s.connected(ended)
	case <-ended:
	case <-s.ctx.Done():
	}
	s.cancel()
	s.ws.CloseNow()
	<-ended
	s.abandon()
}

// connected is the time in which the companion has the session.
func (s *Session) connected(ended <-chan struct{}) {
	name, version := s.Client()
	s.server.cfg.Log.Info("an agent connected", "client", name, "version", version, "transport", s.Transport())
	s.server.cfg.Backend.Connect(s)
	defer s.server.cfg.Backend.Disconnect(s)
	var writing sync.WaitGroup
	writing.Go(s.write)
	select {
	case <-ended:
	case <-s.ctx.Done():
	}
	s.cancel()
	writing.Wait()
}

// end ends the session. It does not wait.
func (s *Session) end() { s.cancel() }

// flush waits until all reviews have been answered, for as long as ctx allows.
func (s *Session) flush(ctx context.Context) {
	s.mu.Lock()
	if len(s.reviews) == 0 {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
}

// The names of the agents, as people know them, by the name that they send.
var names = map[string]string{"claude-code": "Claude Code", opencode: "opencode"}

const opencode = "opencode"

// maxName bounds a name and a version, in bytes.
const maxName = 64

// Client implements [companion.Session].
func (s *Session) Client() (name, version string) {
	info := s.clientInfo()
	if name = names[info.Name]; name == "" {
		name = termtext.Line(info.Name, maxName)
	}
	return name, termtext.Line(info.Version, maxName)
}

func (s *Session) clientInfo() mcp.Implementation {
	if p := s.mcp.InitializeParams(); p != nil && p.ClientInfo != nil {
		return *p.ClientInfo
	}
	return mcp.Implementation{}
}

// Transport implements [companion.Session].
func (s *Session) Transport() string { return "websocket" }

// Since implements [companion.Session].
func (s *Session) Since() time.Time { return s.since }

// ContextChanged implements [companion.Session].
func (s *Session) ContextChanged() { s.wake.Set() }

// Resolve implements [companion.Session]: the call of openDiff returns.
func (s *Session) Resolve(p companion.Proposal, o companion.Outcome, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.reviews, func(r *review) bool { return r.proposal == p && !r.decided })
	if i < 0 {
		go done(errUndelivered)
		return
	}
	r := s.reviews[i]
	r.decided, r.done = true, done
	r.outcome <- o
}

// errUndecided answers a change that another one has replaced, or that could not be
// displayed.
var errUndecided = errors.New("the user has not decided in the editor: ask in the terminal")

// openDiff shows a proposal and returns the user's decision.
//
// The agent takes TAB_CLOSED for a yes, so that is never the answer.
func (s *Session) openDiff(ctx context.Context, a openDiffArgs) (answer []string, err error) {
	r := &review{proposal: a.proposal(), tab: a.Tab, outcome: make(chan companion.Outcome, 1)}
	s.mu.Lock()
	r.id = s.calls[a.Tab]
	delete(s.calls, a.Tab)
	s.reviews = append(s.reviews, r)
	s.mu.Unlock()
	if err := s.server.cfg.Backend.Propose(ctx, s, r.proposal); err != nil {
		return nil, err
	}
	select {
	case o := <-r.outcome:
		switch {
		case o.Accepted:
			return []string{"FILE_SAVED", o.Text}, nil
		case o.Superseded, o.Failed:
			return nil, errUndecided
		}
		return []string{"DIFF_REJECTED", r.tab}, nil
	case <-s.ctx.Done():
		return nil, errUndelivered
	}
}

// closeDiffs ends the reviews that match, because the user has answered in the
// terminal. It returns how many there were. The agent no longer waits for the answers
// of their calls.
func (s *Session) closeDiffs(ctx context.Context, match func(*review) bool) (closed int) {
	s.mu.Lock()
	var open []*review
	for _, r := range s.reviews {
		if !r.decided && match(r) {
			open = append(open, r)
		}
	}
	s.mu.Unlock()
	for _, r := range open {
		if _, err := s.server.cfg.Backend.Withdraw(ctx, s, r.proposal.Path); err != nil {
			continue // the user has just decided
		}
		s.mu.Lock()
		r.decided = true
		s.mu.Unlock()
		r.outcome <- companion.Outcome{}
		closed++
	}
	return closed
}

// called remembers which request calls openDiff for a tab.
func (s *Session) called(tab string, id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[tab] = id
}

// answered forgets the review whose answer was written, or could not be.
func (s *Session) answered(id jsonrpc.ID, err error) {
	s.mu.Lock()
	var done func(error)
	s.reviews = slices.DeleteFunc(s.reviews, func(r *review) bool {
		if r.id == id {
			done = r.done
		}
		return r.id == id
	})
	s.idleLocked()
	s.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// abandon reports that the remaining answers did not arrive.
func (s *Session) abandon() {
	s.mu.Lock()
	left := s.reviews
	s.reviews = nil
	s.idleLocked()
	s.mu.Unlock()
	for _, r := range left {
		if r.done != nil {
			r.done(errUndelivered)
		}
	}
}

func (s *Session) idleLocked() {
	if s.idle != nil && len(s.reviews) == 0 {
		close(s.idle)
		s.idle = nil
	}
}
