// Package mcp serves the Model Context Protocol to the agents of a companion and to the clients of
// the bridge; here both are called agents. An agent's package, or the bridge, adds its dialect:
// tools, names, limits, texts, and the way to the server.
//
// A [Server] holds the sessions of one kind of agent. A [Session] is the server's side of
// MCP with one agent:
//
//	Session             methods, calls in order, outbox, connect and disconnect
//	Conn, or Endpoint   messages as frames of a stream, or HTTP with event streams
//
// # Methods and tools
//
// The methods are a table in this package: initialize, ping, tools/list and tools/call. The
// tools are a table in the agent's package. A message that is neither in the tables nor
// valid does no harm: it gets an error. The version of MCP without initialize is in stateless.go.
//
// # Order
//
// One goroutine of a session runs the calls in the order in which they arrived, so each call
// finds the effects of all earlier ones. A tool that waits for the user returns [ErrLater]; then
// [Call.Answer] answers the call, maybe hours later, and the calls after it do not wait. A tool
// without effects can be [Tool.Concurrent]. An agent can cancel a call with
// notifications/cancelled; the cancellation takes its place in the same order. A call that is
// canceled before its tool returns has no answer.
//
// # Outbox
//
// The goroutine that reads from an agent never writes to it. Messages wait in the session's
// outbox, which another goroutine writes. A message is encoded when it is its turn, so a
// notification can carry the latest state. Its sender learns when it was written, or that it was
// not. An agent that does not read delays only its own messages. Writes have no deadline: the end
// of the session closes the connection under them.
//
// # HTTP
//
// The answer to a request goes to the response to its post; all other messages go to the event
// stream. A session has one: the next one replaces it. Without a stream messages wait for the next
// one, and a message whose write fails goes there, too. Nothing else is resumed: events have
// no IDs. A session ends when the agent deletes it, or has no stream for some time.
//
// [Endpoint.Admit] checks the Origin, the Host and the secret of a request, since each agent has
// its own rules.
//
// # Limits
//
// A server bounds its sessions. A session bounds the unanswered calls, the text that waits to
// take effect, and the text that waits to be written. See the constants in session.go.
package mcp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// A Config configures a [Server].
type Config struct {
	// Title names the server to people. Instructions are for models; may be empty.
	Title, Version, Instructions string

	Log *slog.Logger
	// Versions are the versions of MCP that clients may ask for, the newest first;
	// [ProtocolVersions] if nil.
	Versions []string
	// Grace is how long a client that sends nothing more may take to read its last answers; a
	// second if 0.
	Grace time.Duration
	// Experimental returns the server's experimental capabilities; may be nil.
	Experimental func() map[string]any
	// MaxSessions bounds the sessions.
	MaxSessions int
}

// A Server holds the sessions of one kind of agent.
//
// Lock order: Server.mu, Session.mu. Neither is held while a function of an agent's package runs,
// nor during I/O.
type Server struct {
	cfg Config

	mu       sync.Mutex
	sessions map[*Session]bool
	closed   bool
	running  sync.WaitGroup // one for each of sessions; added to under mu while the server is not closed
}

// versions returns the supported versions of MCP.
func (s *Server) versions() []string {
	if s.cfg.Versions == nil {
		return ProtocolVersions
	}
	return s.cfg.Versions
}

// New returns a server without sessions.
func New(cfg Config) *Server { return &Server{cfg: cfg, sessions: make(map[*Session]bool)} }

var errFull = errors.New("too many sessions, or the companion is shutting down: end some of the connected agents")

func (s *Server) add(session *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.sessions) >= s.cfg.MaxSessions {
		return errFull
	}
	s.sessions[session] = true
	s.running.Add(1)
	return nil
}

func (s *Server) remove(session *Session) {
	s.mu.Lock()
	delete(s.sessions, session)
	s.mu.Unlock()
	s.running.Done()
}

// Sessions returns how many sessions there are. They count from [Server.NewSession] on.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// End ends all sessions once the agents have the answers to their calls. It waits for that for
// as long as ctx allows, and does not wait for the sessions.
func (s *Server) End(ctx context.Context) {
	s.mu.Lock()
	var all []*Session
	for session := range s.sessions {
		all = append(all, session)
	}
	s.mu.Unlock()
	for _, session := range all {
		session.flush(ctx)
	}
	for _, session := range all {
		session.End()
	}
}

// Close refuses new sessions, ends the others as [Server.End] does, and waits for them.
func (s *Server) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.End(ctx)
	s.running.Wait()
}
