// Package copilotide lets GitHub Copilot CLI use a companion: MCP over HTTP on a unix
// socket, or on a named pipe on Windows, found through a lock file in ~/.copilot/ide.
//
// No contract is published. The package follows what Copilot CLI 1.0.102 does;
// docs/COPILOT.md says what users notice of it.
package copilotide

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"time"

	"pollux/internal/gate"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
	"pollux/internal/sys/sock"
)

// A Config configures a [Server].
type Config struct {
	attach.Companion
	// Dir is the directory for the lock file; [Dir] if empty.
	Dir string
}

const (
	// goneTimeout is how long an agent may be without an event stream: some times the second
	// after which it opens a broken one again.
	goneTimeout = 5 * time.Second
	scheme      = "Nonce "
)

// A Server is a companion's server for Copilot CLI. It listens from [New] on; requests
// are answered once [Server.Serve] runs.
//
// Lock order: the lock of blocking.Server, then the companion's lock.
type Server struct {
	*blocking.Server
	scheme  string // of the address
	address string // "" if the system refused one
	nonce   string
}

// New returns a server that listens on a socket in the user's private directory.
func New(cfg Config) *Server {
	s := &Server{nonce: rand.Text()}
	endpoint := &mcp.Endpoint{Admit: s.admit, Open: s.open, GoneTimeout: goneTimeout}
	l, kind, address, err := sock.ListenPrivate("copilot")
	// Pollux starts even if, for example, the path is too long: the user may not have this
	// agent.
	if err != nil {
		cfg.Log.Warn("Copilot CLI will not find this companion: set POLLUX_RUNTIME_DIR to a short path that you own", "err", err)
	} else {
		s.scheme, s.address = kind, address
	}
	s.Server = blocking.NewServer(blocking.Config{
		Companion: cfg.Companion, Agent: "Copilot CLI", Names: names, Dir: cfg.Dir, DefaultDir: Dir,
		Lock: s.lock, Listener: l, Handler: endpoint,
	})
	return s
}

// admit implements [mcp.Endpoint.Admit]. Web pages always send an Origin.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case len(r.Header.Values("Origin")) > 0:
		mcp.TurnAway(w, r, http.StatusForbidden, "requests from web pages are not served")
	case !gate.SameSecret(r.Header.Get("Authorization"), scheme+s.nonce):
		mcp.TurnAway(w, r, http.StatusUnauthorized, "the nonce is missing or wrong: it is in the lock file")
	default:
		// The contract does not ask for MCP's headers.
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
			if r.Header.Get(name) == "" {
				r.Header.Set(name, value)
			}
		}
		return true
	}
	return false
}

// Publish writes the lock file.
func (s *Server) Publish(roots, _ []string) error {
	s.Server.Publish(newUUID(), roots)
	return nil
}

// AddEnv adds nothing: the agent finds the server through the lock file only.
func (s *Server) AddEnv(map[string]string) {}

// ViewsChanged does nothing: the agent shows each change in its terminal, too.
func (s *Server) ViewsChanged() {}

// Note returns nothing.
func (s *Server) Note() string { return "" }

// lock returns the lock file, or nil if there must be none: see [blocking.Config].
func (s *Server) lock(folders []string) any {
	if s.address == "" || !blocking.Wanted(s.Dir, exec.LookPath, Command) {
		return nil
	}
	trusted := s.Backend.Context().Trusted
	return Lock{
		SocketPath: s.address, Scheme: s.scheme, Headers: map[string]string{"Authorization": scheme + s.nonce},
		PID: os.Getpid(), IDEName: cmp.Or(s.Editor.DisplayName, "Pollux"), Timestamp: s.Mark.Since,
		WorkspaceFolders: folders, IsTrusted: trusted != nil && *trusted, Pollux: s.Mark,
	}
}
