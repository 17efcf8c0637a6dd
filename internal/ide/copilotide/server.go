// Package copilotide lets GitHub Copilot CLI use a companion: MCP over HTTP on a unix
// socket, or on a named pipe on Windows, found through a lock file in ~/.copilot/ide.
//
// No contract is published. The package follows what Copilot CLI 1.0.102 does;
// docs/COPILOT.md says what users notice of it.
package copilotide

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/gate"
	"pollux/internal/ide/blocking"
	"pollux/internal/ide/lockfile"
	"pollux/internal/ide/mcp"
	"pollux/internal/sys/sock"
)

// A Backend is the companion that the server belongs to.
type Backend interface {
	blocking.Backend
	// Diagnostics is [companion.Companion.Diagnostics].
	Diagnostics(ctx context.Context, path string) ([]editor.FileDiagnostics, error)
}

// A Config configures a [Server]. A duration of zero means the default.
type Config struct {
	Backend Backend
	Log     *slog.Logger // none if nil
	// Version is the companion's version.
	Version string
	// Editor names the companion to the agent's user.
	Editor editor.Info
	// Dir is the directory for the lock file; [Dir] if empty.
	Dir string
	// GoneTimeout is how long an agent may be without an event stream.
	GoneTimeout time.Duration
}

const (
	// defaultGoneTimeout is some times the second after which an agent opens a broken
	// stream again.
	defaultGoneTimeout = 5 * time.Second
	// maxSessions is far above what a person runs.
	maxSessions = 64
	scheme      = "Nonce "
)

// A Server is a companion's server for Copilot CLI. It listens from [New] on; requests
// are answered once [Server.Serve] runs.
//
// Lock order: the lock of lockfile.File, then the companion's lock.
type Server struct {
	*lockfile.File
	cfg      Config
	http     *gate.Server
	scheme   string // of the address
	address  string // "" if the system refused one
	nonce    string
	mcp      *mcp.Server
	endpoint mcp.Endpoint
	running  sync.WaitGroup // of Watch
}

// New returns a server that listens on a socket in the user's private directory.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.GoneTimeout == 0 {
		cfg.GoneTimeout = defaultGoneTimeout
	}
	if cfg.Dir == "" {
		var err error
		if cfg.Dir, err = Dir(); err != nil { // other agents may not need it
			cfg.Log.Warn("Copilot CLI will not find this companion", "err", err)
		}
	}
	s := &Server{cfg: cfg, nonce: rand.Text()}
	s.File = lockfile.New(cfg.Log, "Copilot CLI", cfg.Dir, s.lock)
	s.mcp = mcp.New(mcp.Config{
		Backend: cfg.Backend, Log: cfg.Log, Title: cfg.Editor.DisplayName, Version: cfg.Version,
		Names: names, MaxSessions: maxSessions,
	})
	s.endpoint.Open, s.endpoint.GoneTimeout = s.open, cfg.GoneTimeout
	own := gate.Config{Handler: http.HandlerFunc(s.serveHTTP), Log: cfg.Log}
	l, kind, address, err := sock.ListenPrivate("copilot")
	// Pollux starts even if, for example, the path is too long: the user may not have this
	// agent.
	if err != nil {
		cfg.Log.Warn("Copilot CLI will not find this companion: set POLLUX_RUNTIME_DIR to a short path that you own", "err", err)
	} else {
		own.Listeners, s.scheme, s.address = []net.Listener{l}, kind, address
	}
	s.http = gate.New(own)
	return s, nil
}

// serveHTTP serves a request, once it has refused web pages, which always send an Origin, and
// clients without the nonce.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case len(r.Header.Values("Origin")) > 0:
		mcp.TurnAway(w, r, http.StatusForbidden, "requests from web pages are not served")
		return
	case !gate.SameSecret(r.Header.Get("Authorization"), scheme+s.nonce):
		mcp.TurnAway(w, r, http.StatusUnauthorized, "the nonce is missing or wrong: it is in the lock file")
		return
	}
	gate.Authenticated(r.Context())
	if r.URL.Path != "/mcp" {
		mcp.Refuse(w, http.StatusNotFound, "the MCP endpoint is /mcp")
		return
	}
	s.endpoint.ServeHTTP(w, r)
}

// Serve serves requests in the background until [Server.Close].
func (s *Server) Serve() {
	if s.address == "" {
		return
	}
	s.http.Serve()
	s.running.Go(func() {
		defer crash.Report()
		s.Watch(nil)
	})
}

// Publish writes the lock file.
func (s *Server) Publish(roots, _ []string) error {
	if s.Dir != "" && s.address != "" {
		prune(s.Dir)
		s.File.Publish(newUUID(), roots)
	}
	return nil
}

// AddEnv adds nothing: the agent finds the server through the lock file only.
func (s *Server) AddEnv(map[string]string) {}

// Kept returns nothing: the next server has another lock file.
func (s *Server) Kept() (port int, token string) { return 0, "" }

// ViewsChanged does nothing: the agent shows each change in its terminal, too.
func (s *Server) ViewsChanged() {}

// Note returns nothing.
func (s *Server) Note() string { return "" }

// lock returns the lock file, or nil if there must be none: see [lockfile.New].
func (s *Server) lock(folders []string) any {
	if !lockfile.Wanted(s.Dir, exec.LookPath, Command) {
		return nil
	}
	trusted := s.cfg.Backend.Context().Trusted
	return Lock{
		SocketPath: s.address, Scheme: s.scheme, Headers: map[string]string{"Authorization": scheme + s.nonce},
		PID: os.Getpid(), IDEName: cmp.Or(s.cfg.Editor.DisplayName, "Pollux"), Timestamp: s.Mark.Since,
		WorkspaceFolders: folders, IsTrusted: trusted != nil && *trusted, Pollux: s.Mark,
	}
}

// Close waits until the agents have the answers to the decided changes, for as long as
// ctx allows, and ends all sessions.
func (s *Server) Close(ctx context.Context) error {
	s.StopWatch()
	s.mcp.Close(ctx)
	err := s.http.Close(ctx)
	s.running.Wait()
	return err
}
