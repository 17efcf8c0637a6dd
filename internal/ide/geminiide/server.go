package geminiide

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Backend does what the CLI asks for. Its methods are called from many
// goroutines and must not block for long: the CLI waits for each.
type Backend interface {
	// OpenDiff starts a review and returns at once. The error's text is shown
	// to the user by the CLI, which then takes the change for lost: an error
	// means that there is no way to show the diff.
	OpenDiff(ctx context.Context, s *Session, req OpenDiffRequest) error
	// CloseDiff ends a review on the CLI's side and returns the content as the
	// user left it. No notification follows.
	CloseDiff(ctx context.Context, s *Session, req CloseDiffRequest) (content string, err error)
	// Context is what the user has open now. It may be called often.
	Context() Context
	// Connected is called once a client has said initialize, Gone when it will
	// not come back: it closed its session, or its event stream ended and did
	// not return within [Config.GoneAfter].
	Connected(s *Session)
	Gone(s *Session)
}

// A Config is what a [Server] needs. The durations have defaults when zero.
type Config struct {
	Backend Backend
	Log     *slog.Logger
	// Version is the companion's, told to clients.
	Version string
	// Title is what clients may call it: the editor's name.
	Title string
	// Roots are the workspace's now; may be nil. They are told to clients as an
	// experimental capability, for who carries the session to another place.
	Roots func() []string
	// Token is the bearer token; a fresh one when empty.
	Token string
	// Port to listen on; 0, which the contract demands of a fresh start, lets
	// the system choose. A restart after a crash passes the old one, which is
	// used if it is free; if not, Token is replaced by a fresh one.
	Port int
	// ExtraHost is a second host address to listen on, and ExtraNames are Host
	// names allowed there: for a CLI in a container (host.docker.internal).
	ExtraHost  string
	ExtraNames []string
	// GoneAfter is how long a client may be without an event stream.
	GoneAfter time.Duration
	// AuthTimeout is how long a connection may live before it authenticates.
	AuthTimeout time.Duration
	// KeepAlive is the interval of the comments that keep a stream from being
	// taken for dead: the CLI's HTTP client cuts a silent one after 300 s.
	KeepAlive time.Duration
	// OnPanic is called before a panic ends the process.
	OnPanic func()
	// MaxBody bounds a request's body in bytes; the CLI sends whole files.
	MaxBody int64
}

const (
	defaultGoneAfter = 30 * time.Second
	defaultKeepAlive = 30 * time.Second
	defaultMaxBody   = 256 << 20
	// unstreamedAfter bounds a session that never opened an event stream.
	unstreamedAfter = 5 * time.Minute
	// maxSessions is far above what a person runs and keeps a client that
	// reconnects in a loop from eating the memory.
	maxSessions = 256
	bodyTimeout = time.Minute
	// closeTimeout is how long a client may take to read the rest of a response
	// when its session ends.
	closeTimeout = time.Second
)

// A Server is a companion's MCP server. It listens from [New] on; requests are
// answered once [Server.Serve] runs.
//
// Lock order: Server.mu before Session.mu; neither is held while a Backend
// method runs.
type Server struct {
	cfg       Config
	http      *http.Server
	listeners []net.Listener
	port      int
	gate      gate
	serving   sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]*Session
	closed   bool
	pages    http.Handler
}

// New listens on 127.0.0.1 and, if asked to, on one more address.
func New(cfg Config) (*Server, error) {
	if cfg.Token == "" {
		cfg.Token = rand.Text()
	}
	if cfg.GoneAfter == 0 {
		cfg.GoneAfter = defaultGoneAfter
	}
	if cfg.AuthTimeout == 0 {
		cfg.AuthTimeout = defaultAuthTimeout
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = defaultKeepAlive
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, gate: gate{timeout: cfg.AuthTimeout}, sessions: make(map[string]*Session)}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", cfg.Port))
	if err != nil && cfg.Port != 0 {
		// The process that now has the old port receives the old token from CLIs that reconnect.
		s.cfg.Token = rand.Text()
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on loopback: %w", err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	s.listeners = []net.Listener{l}
	if cfg.ExtraHost != "" {
		l, err := net.Listen("tcp", net.JoinHostPort(cfg.ExtraHost, fmt.Sprint(s.port)))
		if err != nil {
			s.listeners[0].Close()
			return nil, fmt.Errorf("cannot listen on %s (is it an address of this machine?): %w", cfg.ExtraHost, err)
		}
		s.listeners = append(s.listeners, l)
	}
	s.http = &http.Server{
		Handler:           s.handler(),
		ConnContext:       s.gate.enter,
		ConnState:         s.gate.state,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, // between requests; the CLI gives a connection up after 4 s
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		// No read or write timeout: they would cut an idle event stream.
	}
	return s, nil
}

// onPanic, deferred, reports a panic and lets it go on.
func (s *Server) onPanic() {
	if r := recover(); r != nil {
		if s.cfg.OnPanic != nil {
			s.cfg.OnPanic()
		}
		panic(r)
	}
}

// Port is the port the server listens on.
func (s *Server) Port() int { return s.port }

// Token is the bearer token that every request must carry.
func (s *Server) Token() string { return s.cfg.Token }

// HandlePages serves h below /review/. It has its own authentication, and calls
// [Authenticated] for clients that pass it; Host and Origin are checked
// before it is asked.
func (s *Server) HandlePages(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = h
}

// Serve answers requests in the background until [Server.Close].
func (s *Server) Serve() {
	for _, l := range s.listeners {
		s.serving.Go(func() {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				s.cfg.Log.Error("the server stopped", "err", err)
			}
		})
	}
}

// Sessions returns the sessions of connected clients.
func (s *Server) Sessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		all = append(all, session)
	}
	return all
}

// ContextChanged tells every client what the user has open now. Clients that
// are slow get the latest state only.
func (s *Server) ContextChanged() {
	for _, session := range s.Sessions() {
		session.contextChanged()
	}
}

// Close lets queued outcomes reach the clients that have a stream, for as long
// as ctx allows, ends every stream gracefully (a broken one would make the CLI
// report an error), and stops.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	sessions := s.Sessions()
	for _, session := range sessions {
		session.flush(ctx)
	}
	var closing sync.WaitGroup
	for _, session := range sessions {
		closing.Go(session.Close)
	}
	closing.Wait()
	shut, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := s.http.Shutdown(shut)
	if err != nil {
		err = s.http.Close()
	}
	for _, l := range s.listeners {
		l.Close() // also when Serve was never called
	}
	s.serving.Wait()
	return err
}

func (s *Server) session(id string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

var (
	errClosing = errors.New("the companion is shutting down")
	errTooMany = fmt.Errorf("more than %d sessions: end some of the connected CLIs", maxSessions)
)

func (s *Server) add(session *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosing
	case len(s.sessions) >= maxSessions:
		return errTooMany
	}
	s.sessions[session.id] = session
	return nil
}

func (s *Server) remove(session *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session.id)
}
