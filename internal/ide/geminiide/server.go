package geminiide

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"pollux/internal/editor"
	"pollux/internal/gate"
	"pollux/internal/ide/attach"
	"pollux/internal/mcp"
	"pollux/internal/sys/sock"
)

// A Config configures a [Server].
type Config struct {
	attach.Companion
	// Roots returns the workspace's current roots; may be nil. The server sends
	// them as an experimental capability, for a relay to another host.
	Roots func() []string
	// PIDs are the process IDs that a CLI may look for, the likeliest first.
	// [Server.Publish] needs at least one.
	PIDs []int
	// Token is the bearer token; a new one if empty.
	Token string
	// Port is the port to listen on. With 0, which the contract requires for a
	// fresh start, the system chooses. A restart after a crash passes the old
	// port: if it is taken, the server chooses another one and a new token. On
	// Linux, it serves only this user and root with the old token.
	Port int
	// ExtraHost is a second host address to listen on, and ExtraNames are Host
	// names allowed there: for a CLI in a container (host.docker.internal).
	ExtraHost  string
	ExtraNames []string
}

const (
	// goneTimeout is how long a client may be without an event stream.
	goneTimeout = 30 * time.Second
	// maxSessions is far above what a person runs. It keeps a client that
	// reconnects in a loop from using up the memory.
	maxSessions = 256
)

// A Server is a companion's MCP server. It listens from [New] on; requests are
// answered once [Server.Serve] runs.
//
// Lock order: the companion's lock, Session.mu; the latter is not held while a Backend method runs.
type Server struct {
	cfg      Config
	http     *gate.Server
	port     int
	hosts    []string // where agents may find the server, other than on this machine
	mcp      *mcp.Server
	endpoint mcp.Endpoint
	old      bool // others may know the token: only programs of this user are served

	publication atomic.Pointer[Publication] // nil until Publish
}

// New returns a server that listens on 127.0.0.1 and on ExtraHost, if set.
func New(cfg Config) (*Server, error) {
	if cfg.Token == "" {
		cfg.Token = rand.Text()
	}
	s := &Server{cfg: cfg}
	var experimental func() map[string]any
	if cfg.Roots != nil {
		experimental = func() map[string]any { return map[string]any{RootsCapability: map[string]any{"roots": cfg.Roots()}} }
	}
	s.mcp = cfg.Companion.Server(maxSessions, experimental)
	s.endpoint = mcp.Endpoint{Admit: s.admit, Open: s.open, GoneTimeout: goneTimeout}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", cfg.Port))
	if err != nil && cfg.Port != 0 {
		// CLIs that reconnect send the old token to any program on the old port.
		s.cfg.Token = rand.Text()
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on loopback: %w", err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	s.old = s.port == cfg.Port && sock.SeesSocket(l)
	listeners := []net.Listener{l}
	if cfg.ExtraHost != "" {
		extra, err := net.Listen("tcp", net.JoinHostPort(cfg.ExtraHost, fmt.Sprint(s.port)))
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("cannot listen on %s (is it an address of this machine?): %w", cfg.ExtraHost, err)
		}
		listeners = append(listeners, extra)
		s.hosts = append([]string{cfg.ExtraHost}, cfg.ExtraNames...)
	}
	s.http = gate.New(gate.Config{Handler: &s.endpoint, Log: cfg.Log, Listeners: listeners})
	return s, nil
}

// Kept returns the port that the server listens on, and the bearer token that every request
// must carry.
func (s *Server) Kept() (port int, token string) { return s.port, s.cfg.Token }

// ViewsChanged does nothing: agents are connected whether or not something shows changes.
func (s *Server) ViewsChanged() {}

// Note returns nothing.
func (s *Server) Note() string { return "" }

// Preamble returns the line that a connection for [Server.ServeConn] starts with.
func (s *Server) Preamble() string { return editor.MCPPreamble }

// Serve answers requests in the background until [Server.Close].
func (s *Server) Serve() { s.http.Serve() }

// Close sends queued outcomes to the clients that have a stream, for as long as
// ctx allows. Then it ends every stream gracefully, since a broken one would make
// the CLI report an error, and stops the server.
func (s *Server) Close(ctx context.Context) error {
	s.mcp.Close(ctx)
	return s.http.Close(ctx)
}

// admit implements [mcp.Endpoint.Admit]: it checks the Host, the Origin and the token, in this
// order.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if reason := gate.Refusal(r, s.port, s.hosts...); reason != "" {
		mcp.TurnAway(w, r, http.StatusForbidden, reason)
		return false
	}
	if s.agentOf(r) == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="pollux"`)
		mcp.TurnAway(w, r, http.StatusUnauthorized,
			"the bearer token is missing or wrong: it is in the discovery file (authToken)")
		return false
	}
	if s.old && !gate.OwnUser(r.Context()) {
		mcp.TurnAway(w, r, http.StatusForbidden, "the token is of a companion that crashed: other users may know it")
		return false
	}
	return true
}

// agentOf returns the name of the program whose token the request has, or "" if
// it has none.
func (s *Server) agentOf(r *http.Request) (agent string) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	for _, c := range clis {
		if gate.SameSecret(token, c.token(s.cfg.Token)) {
			agent = c.name
		}
	}
	return agent
}
