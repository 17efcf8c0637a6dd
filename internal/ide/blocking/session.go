package blocking

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
	"pollux/internal/termtext"
)

// A SessionConfig configures a [Session].
type SessionConfig struct {
	Backend Backend
	Log     *slog.Logger
	OnPanic OnPanic
	// Self is the session as the companion receives it. It embeds the [Session].
	Self companion.Session
	// Implementation is what the agent receives about the companion.
	Implementation mcp.Implementation
	// Names are the agents' names, as people know them, by the names that they send.
	Names map[string]string
	// Delays and Shift are those of [Feed]. Shift receives the name that the agent
	// sends; no shift if nil.
	Delays []time.Duration
	Shift  func(client string) int
	// Connected is called on a goroutine of its own when the agent has connected; may be
	// nil. It must return soon after Ctx ends.
	Connected func(agent *mcp.ServerSession)
	// SkipNothing is that of [Feed].
	SkipNothing bool
	// Messages encodes the context for all sessions of a server.
	Messages *Messages
}

// A Conn is the connection of a session.
type Conn interface {
	mcp.Connection
	// Send writes a notification that is encoded already. It must not change it.
	Send(ctx context.Context, message []byte) error
}

// A Session is the part of a [companion.Session] that the agents share. The session of
// an agent embeds it, and adds a transport.
//
// The MCP SDK serves the tools. It cannot send custom notifications, so the session
// writes them to the transport itself, from one goroutine.
type Session struct {
	// Ctx ends with the session.
	Ctx   context.Context
	Calls *Calls
	Feed  *Feed

	cfg    SessionConfig
	since  time.Time
	cancel context.CancelFunc
	done   sync.WaitGroup // the goroutines that end soon after Ctx does

	mu     sync.Mutex
	client *mcp.Implementation // what the agent says it is; nil until it is connected
	conn   Conn                // nil until Serve
}

// NewSession returns a session that [Session.Serve] starts.
func NewSession(cfg SessionConfig) *Session {
	s := &Session{cfg: cfg, since: time.Now()}
	s.Ctx, s.cancel = context.WithCancel(context.Background())
	s.Calls = NewCalls(s.Ctx, cfg.Self, cfg.Backend, cfg.OnPanic)
	s.Feed = NewFeed(Feed{
		Backend: cfg.Backend, Delays: cfg.Delays, SkipNothing: cfg.SkipNothing, OnPanic: cfg.OnPanic,
		Shift: func() int {
			if cfg.Shift == nil {
				return 0
			}
			return cfg.Shift(s.clientInfo().Name)
		},
		Send: func(m Selection) error { return s.send(cfg.Messages.encode(m)) },
	})
	return s
}

// protocolVersions are the versions of MCP in which a client connects before it calls
// a tool.
var protocolVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Serve serves the agent until the connection or the session ends. The connection must
// end soon after Ctx does. addTools adds the tools.
func (s *Session) Serve(conn Conn, addTools func(*mcp.Server)) {
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	server := mcp.NewServer(&s.cfg.Implementation, &mcp.ServerOptions{
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SupportedProtocolVersions: protocolVersions,
		InitializedHandler: func(_ context.Context, req *mcp.InitializedRequest) {
			defer s.cfg.OnPanic.Report()
			s.connect(req.Session)
		},
	})
	addTools(server)
	if session, err := server.Connect(s.Ctx, transport{conn}, nil); err == nil {
		session.Wait() // also for the tools that run
	}
	s.cancel()
	s.done.Wait()
	if s.connected() {
		s.cfg.Log.Info("an agent has disconnected", "transport", s.cfg.Self.Transport())
		s.cfg.Backend.Disconnect(s.cfg.Self)
	}
	s.Calls.Abandon()
}

// A transport is a connection that is open already.
type transport struct{ mcp.Connection }

// Connect implements [mcp.Transport].
func (t transport) Connect(context.Context) (mcp.Connection, error) { return t.Connection, nil }

// connect gives the session to the companion.
func (s *Session) connect(agent *mcp.ServerSession) {
	client := agent.InitializeParams().ClientInfo
	if client == nil {
		client = &mcp.Implementation{}
	}
	s.mu.Lock()
	s.client = client
	s.mu.Unlock()
	s.Calls.Start()
	name, version := s.cfg.Self.Client()
	s.cfg.Log.Info("an agent connected", "client", name, "version", version, "transport", s.cfg.Self.Transport())
	s.cfg.Backend.Connect(s.cfg.Self)
	s.done.Go(func() { s.Feed.Run(s.Ctx) })
	if s.cfg.Connected != nil {
		s.done.Go(func() {
			defer s.cfg.OnPanic.Report()
			s.cfg.Connected(agent)
		})
	}
}

func (s *Session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

// End ends the session. It does not wait.
func (s *Session) End() { s.cancel() }

// Notify sends a notification to the agent.
func (s *Session) Notify(method string, params any) error {
	return s.send(encodeNotification(method, params))
}

// send sends a notification, unless encoding it has failed.
func (s *Session) send(message []byte, err error) error {
	if err != nil {
		return err
	}
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	return conn.Send(s.Ctx, message)
}

// MaxName bounds a name and a version, in bytes.
const MaxName = 64

// Client implements [companion.Session].
func (s *Session) Client() (name, version string) {
	info := s.clientInfo()
	if name = s.cfg.Names[info.Name]; name == "" {
		name = termtext.Line(info.Name, MaxName)
	}
	return name, termtext.Line(info.Version, MaxName)
}

func (s *Session) clientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return mcp.Implementation{}
	}
	return *s.client
}

// Since implements [companion.Session].
func (s *Session) Since() time.Time { return s.since }

// ContextChanged implements [companion.Session].
func (s *Session) ContextChanged() { s.Feed.Changed() }

// Resolve implements [companion.Session]: the call that shows the proposal returns.
func (s *Session) Resolve(p companion.Proposal, o companion.Outcome, done func(error)) {
	s.Calls.Resolve(p, o, done)
}
