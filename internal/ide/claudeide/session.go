package claudeide

import (
	"context"
	"errors"
	"net"
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
//
// A client that does not read, such as a suspended one, blocks the writes to it and
// nothing else. They have no deadline; the end of the session closes the connection
// under them.
type Session struct {
	textRules

	server *Server
	since  time.Time
	ws     *websocket.Conn // set before serve, like the next two
	local  net.Addr        // of the connection
	remote string
	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	done   sync.WaitGroup // the goroutines that end soon after ctx does

	wake     outbox.Signal // the context has changed
	refresh  outbox.Signal // the agent may have dropped the context: send it again
	mentions chan mention  // to send

	mu       sync.Mutex
	client   *mcp.Implementation // what the agent says it is; nil until it is connected
	pid      int                 // the agent's process; 0 if it is not known
	dir      string              // its working directory
	numbered int                 // how many calls there were
	calls    []*call             // that have not been answered
	queue    []*call             // that have not taken effect; it is the first one's turn
	reviews  []*review           // the oldest first
	idle     chan struct{}       // closed when no decision is left to write; nil unless flush waits
}

// A review is a call of openDiff whose answer has not been written.
type review struct {
	call     *call
	proposal companion.Proposal
	tab      string
	outcome  chan companion.Outcome // holds at most one
	decided  bool                   // it has an outcome, or gets none
	done     func(error)            // reports that the agent has the answer; may be nil
}

func (s *Server) newSession() *Session {
	session := &Session{
		server: s, since: time.Now(), wake: outbox.NewSignal(), refresh: outbox.NewSignal(), mentions: make(chan mention),
	}
	session.ctx, session.cancel = context.WithCancel(context.Background())
	return session
}

// serve serves the agent until the connection or the session ends.
func (s *Session) serve() {
	s.done.Go(func() {
		<-s.ctx.Done()
		s.ws.CloseNow()
	})
	self := &mcp.Implementation{Name: "pollux", Title: s.server.cfg.Editor.DisplayName, Version: s.server.cfg.Version}
	server := mcp.NewServer(self, &mcp.ServerOptions{
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SupportedProtocolVersions: protocolVersions,
		InitializedHandler: func(_ context.Context, req *mcp.InitializedRequest) {
			defer s.server.onPanic()
			s.connect(req.Session)
		},
	})
	s.addTools(server)
	if session, err := server.Connect(s.ctx, transportOf{s}, nil); err == nil {
		session.Wait() // also for the tools that run
	}
	s.cancel()
	s.done.Wait()
	if s.connected() {
		s.server.cfg.Log.Info("an agent has disconnected", "transport", s.Transport())
		s.server.cfg.Backend.Disconnect(s)
	}
	s.abandon()
}

// protocolVersions are the versions of MCP in which a client connects before it calls
// a tool.
var protocolVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// connect gives the session to the companion.
func (s *Session) connect(peer *mcp.ServerSession) {
	client := peer.InitializeParams().ClientInfo
	if client == nil {
		client = &mcp.Implementation{}
	}
	s.mu.Lock()
	s.client = client
	s.mu.Unlock()
	name, version := s.Client()
	s.server.cfg.Log.Info("an agent connected", "client", name, "version", version, "transport", s.Transport())
	s.server.cfg.Backend.Connect(s)
	s.done.Go(s.write)
	s.done.Go(func() { s.locate(peer) })
}

func (s *Session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// end ends the session. It does not wait.
func (s *Session) end() { s.cancel() }

// flush waits until the agent has the answers to the reviews that are decided, for
// as long as ctx allows.
func (s *Session) flush(ctx context.Context) {
	s.mu.Lock()
	if !s.unwrittenLocked() {
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

func (s *Session) unwrittenLocked() bool {
	return slices.ContainsFunc(s.reviews, func(r *review) bool { return r.decided })
}

func (s *Session) idleLocked() {
	if s.idle != nil && !s.unwrittenLocked() {
		close(s.idle)
		s.idle = nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return mcp.Implementation{}
	}
	return *s.client
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
	i := slices.IndexFunc(s.reviews, func(r *review) bool { return !r.decided && r.proposal == p })
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
func (s *Session) openDiff(ctx context.Context, c *call, a openDiffArgs) (answer []string, err error) {
	r := &review{call: c, proposal: a.proposal(), tab: a.Tab, outcome: make(chan companion.Outcome, 1)}
	s.mu.Lock()
	s.reviews = append(s.reviews, r)
	s.mu.Unlock()
	err = s.server.cfg.Backend.Propose(ctx, s, r.proposal)
	s.tookEffect(c)
	if err != nil {
		s.giveUp(r)
		return nil, err
	}
	select {
	case o := <-r.outcome:
		return r.answer(o)
	case <-s.ctx.Done():
	case <-ctx.Done(): // the agent has canceled the call, or the session has ended
		closing := s.enqueue(jsonrpc.ID{})
		if s.wait(closing) == nil {
			s.closeDiffs(s.ctx, func(other *review) bool { return other == r })
		}
		s.answered(closing, nil)
	}
	if s.giveUp(r) {
		return nil, errUndelivered
	}
	return r.answer(<-r.outcome)
}

// answer returns the result of a call. The agent takes TAB_CLOSED for a yes, so that
// is never the answer.
func (r *review) answer(o companion.Outcome) ([]string, error) {
	switch {
	case o.Accepted:
		return []string{"FILE_SAVED", o.Text}, nil
	case o.Superseded, o.Failed:
		return nil, errUndecided
	}
	return []string{"DIFF_REJECTED", r.tab}, nil
}

// giveUp makes a review take no outcome any more. It reports false if the review has
// one.
func (s *Session) giveUp(r *review) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	undecided := !r.decided
	r.decided = true
	return undecided
}

// closeDiffs ends the reviews that match, because the user has answered in the
// terminal. It returns how many there were. The agent no longer waits for the answers
// of their calls. It must be the turn of the caller's call, so that there is at most
// one review for a path.
func (s *Session) closeDiffs(ctx context.Context, match func(*review) bool) (closed int) {
	s.mu.Lock()
	open := slices.DeleteFunc(slices.Clone(s.reviews), func(r *review) bool { return r.decided || !match(r) })
	s.mu.Unlock()
	for _, r := range open {
		if _, err := s.server.cfg.Backend.Withdraw(ctx, s, r.proposal.Path); err != nil {
			continue // the user has just decided
		}
		if s.giveUp(r) {
			r.outcome <- companion.Outcome{}
			closed++
		}
	}
	return closed
}

// answered forgets a call whose answer was written, or could not be.
func (s *Session) answered(c *call, err error) {
	s.tookEffect(c)
	s.mu.Lock()
	var done func(error)
	s.calls = slices.DeleteFunc(s.calls, func(other *call) bool { return other == c })
	s.reviews = slices.DeleteFunc(s.reviews, func(r *review) bool {
		if r.call == c {
			done = r.done
		}
		return r.call == c
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
