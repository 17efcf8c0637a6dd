// Package gate contains what the companion's HTTP servers share: it keeps web pages out, and
// clients without a token from using up the connections.
package gate

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pollux/internal/sys/sock"
)

const (
	// Timeout is how long a connection may live before it authenticates.
	Timeout = 10 * time.Second
	// MaxStrangers bounds the connections that have not authenticated. It is far
	// above what a browser and some CLIs open at the same time, and far below the
	// usual limit of open files.
	MaxStrangers = 64
)

// A List holds the connections of a server that keeps only the newest. The zero List is empty.
type List struct {
	mu      sync.Mutex
	entries []entry // the oldest first
}

type entry struct {
	conn  net.Conn
	since time.Time
}

// Add adds a connection. If there are more than limit now, it removes and closes the oldest one.
func (l *List) Add(conn net.Conn, limit int) {
	l.mu.Lock()
	l.entries = append(l.entries, entry{conn, time.Now()})
	var oldest net.Conn
	if len(l.entries) > limit {
		oldest = l.entries[0].conn
		l.entries = slices.Delete(l.entries, 0, 1)
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
}

// Remove removes a connection. It reports whether the list had it.
func (l *List) Remove(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.entries)
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.conn == conn })
	return len(l.entries) < n
}

// removeUntil removes the connections that were added at a time or before it, and returns them.
func (l *List) removeUntil(limit time.Time) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.entries) && !l.entries[n].since.After(limit) {
		n++
	}
	removed := slices.Clone(l.entries[:n])
	l.entries = slices.Delete(l.entries, 0, n)
	return removed
}

// A Config configures a [Server].
type Config struct {
	// Handler calls [Authenticated] for the requests of clients that authenticate.
	Handler   http.Handler
	Log       *slog.Logger
	Listeners []net.Listener
}

// A Server is an HTTP server whose clients authenticate. It bounds how many connections
// clients without the secret can hold, and for how long. A new connection replaces the
// oldest one, so that the user's own agent, which authenticates with its first request,
// always gets in. It has no timeout for reads and writes, which would cut a response that
// waits for the user.
type Server struct {
	Config
	http      *http.Server
	strangers List // the connections that have not authenticated
	serving   sync.WaitGroup
}

// New returns a server, which [Server.Serve] starts.
func New(cfg Config) *Server {
	s := &Server{Config: cfg}
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serveHTTP), ConnContext: s.enter, ConnState: s.changed,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, // between requests
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers requests in the background until [Server.Close].
func (s *Server) Serve() {
	for _, l := range s.Listeners {
		s.serving.Go(func() {
			if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				s.Log.Error("a server stopped", "err", err)
			}
		})
	}
}

// closeTimeout is how long clients may take to read the rest of their responses.
const closeTimeout = time.Second

// Close ends the server. The requests that it still serves have a second, or until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	for _, l := range s.Listeners {
		l.Close() // even if Serve was never called
	}
	s.serving.Wait()
	return err
}

// serveHTTP prepares the response to a request, which the handler writes.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	s.Handler.ServeHTTP(w, r)
}

// enter counts a new connection. The context carries what [Authenticated] and [OwnUser]
// call.
func (s *Server) enter(ctx context.Context, conn net.Conn) context.Context {
	s.strangers.Add(conn, MaxStrangers)
	time.AfterFunc(Timeout, func() { s.Sweep(time.Now()) })
	return context.WithValue(ctx, key{}, client{
		leave: func() { s.strangers.Remove(conn) },
		own:   sync.OnceValue(func() bool { return ownUser(conn.LocalAddr(), conn.RemoteAddr()) }),
	})
}

// changed forgets a connection that has ended.
func (s *Server) changed(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		s.strangers.Remove(conn)
	}
}

// Sweep closes the connections whose time has run out at now.
func (s *Server) Sweep(now time.Time) {
	for _, e := range s.strangers.removeUntil(now.Add(-Timeout)) {
		e.conn.Close()
	}
}

// isLocal reports whether the Host of a request, or of an Origin, is a server on that port
// of this machine, or of one of the other hosts. A web page whose host name leads to this
// machine sends its own.
func isLocal(host string, port int, others ...string) bool {
	name, p, err := net.SplitHostPort(host)
	if err != nil || p != strconv.Itoa(port) {
		return false
	}
	return slices.ContainsFunc(append([]string{"127.0.0.1", "localhost", "::1"}, others...),
		func(other string) bool { return strings.EqualFold(other, name) })
}

// Refusal returns why a request is not for a server on that port of this machine, or of one
// of the other hosts, or "" if it is: it checks the Host against DNS rebinding, and the Origin
// against web pages.
func Refusal(r *http.Request, port int, others ...string) string {
	if !isLocal(r.Host, port, others...) {
		return "this Host is not served here: connect to 127.0.0.1"
	}
	if values := r.Header.Values("Origin"); len(values) > 0 {
		origin, err := url.Parse(values[0])
		if len(values) > 1 || err != nil || origin.Scheme != "http" || !isLocal(origin.Host, port, others...) {
			return "requests from this Origin are not served"
		}
	}
	return ""
}

// SameSecret reports whether a client has sent the secret. The secret does not influence
// how long it takes.
func SameSecret(got, want string) bool {
	// Hashed, so that the time of the comparison does not reveal the length.
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

const (
	// restTimeout is how long the rest of a refused request may take.
	restTimeout = time.Second
	// maxRest limits how much of a refused request is read, in bytes.
	maxRest = 1 << 20
)

// TurnAway refuses a request with a document and ends its connection. It answers
// immediately. Then it reads what the client still sends, within limits: otherwise a client
// that is sending sees a broken connection instead of the answer.
func TurnAway(w http.ResponseWriter, r *http.Request, status int, contentType string, document []byte) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(restTimeout))
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(document))) // the client does not wait for more
	w.WriteHeader(status)
	w.Write(document)
	rc.Flush()
	io.CopyN(io.Discard, r.Body, maxRest)
}

// A client describes a request's connection, in the request's context.
type client struct {
	leave func()
	own   func() bool
}

type key struct{}

// Authenticated reports that the client of a request has authenticated, for
// handlers that check that themselves. The gate closes the connections of other
// clients after a short time.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(key{}).(client); ok {
		c.leave()
	}
}

// OwnUser reports whether the client of a request runs as this user or as root, or on
// another machine or in a container with its own network. It needs
// [pollux/internal/sock.SeesSocket].
//
// A server that has an old token again calls it. After a crash an agent sends the token to
// its old port, where the program of another user may listen. A new token has never left
// the user's own files, so servers with one do without this check: it costs time, and some
// sandboxes and relays hide the user.
func OwnUser(ctx context.Context) bool {
	c, ok := ctx.Value(key{}).(client)
	return ok && c.own()
}

func ownUser(local, remote net.Addr) bool {
	if uid, ok := sock.PeerUser(local, remote); ok {
		return uid == os.Getuid() || uid == 0
	}
	a, ok := remote.(*net.TCPAddr)
	return ok && !a.IP.IsLoopback()
}
