// Package gate keeps clients without a token from using up a server's connections.
package gate

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"pollux/internal/sys"
)

const (
	// DefaultTimeout is how long a connection may live before it authenticates.
	DefaultTimeout = 10 * time.Second
	// MaxStrangers bounds the connections that have not authenticated. It is far
	// above what a browser and some CLIs open at once, and far below the usual
	// limit of open files.
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
// It also returns when the oldest remaining connection was added, or false if none remains.
func (l *List) removeUntil(limit time.Time) (removed []entry, since time.Time, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.entries) && !l.entries[n].since.After(limit) {
		n++
	}
	removed = slices.Clone(l.entries[:n])
	l.entries = slices.Delete(l.entries, 0, n)
	if more = len(l.entries) > 0; more {
		since = l.entries[0].since
	}
	return removed, since, more
}

// A Gate bounds how many connections clients without the token can hold, and for
// how long. A new connection replaces the oldest one, so that the user's own CLI,
// which authenticates with its first request, always gets in.
type Gate struct {
	timeout   time.Duration
	strangers List // the connections that have not authenticated

	mu    sync.Mutex
	timer *time.Timer
}

// New returns a gate that closes a connection that has not authenticated within the
// timeout; DefaultTimeout if 0.
func New(timeout time.Duration) *Gate {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return &Gate{timeout: timeout}
}

// Enter counts a new connection. It is the ConnContext of an [http.Server]. The
// request's context carries what [Authenticated] and [OwnUser] call.
func (g *Gate) Enter(ctx context.Context, conn net.Conn) context.Context {
	g.strangers.Add(conn, MaxStrangers)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil {
		g.armLocked(time.Now())
	}
	return context.WithValue(ctx, key{}, client{
		leave: func() { g.strangers.Remove(conn) },
		own:   sync.OnceValue(func() bool { return ownUser(conn.LocalAddr(), conn.RemoteAddr()) }),
	})
}

// Server returns an HTTP server whose clients authenticate. It has no timeout for reads and
// writes, which would cut a response that waits for the user.
func (g *Gate) Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ConnContext: g.Enter, ConnState: g.State,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, // between requests
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// State is the ConnState of an [http.Server].
func (g *Gate) State(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		g.strangers.Remove(conn)
	}
}

// Sweep closes the connections whose time has run out at now.
func (g *Gate) Sweep(now time.Time) {
	g.mu.Lock()
	g.timer = nil
	over, oldest, more := g.strangers.removeUntil(now.Add(-g.timeout))
	if more {
		g.armLocked(oldest)
	}
	g.mu.Unlock()
	for _, s := range over {
		s.conn.Close()
	}
}

// armLocked arranges a sweep for when the time of a connection has run out.
func (g *Gate) armLocked(since time.Time) {
	g.timer = time.AfterFunc(time.Until(since.Add(g.timeout)), func() { g.Sweep(time.Now()) })
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

// TurnAway refuses a request with a JSON document and ends its connection. It answers at
// once. Then it reads what the client still sends, within limits: otherwise a client that
// is sending sees a broken connection instead of the answer.
func TurnAway(w http.ResponseWriter, r *http.Request, status int, document []byte) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(restTimeout))
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "application/json")
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
// [pollux/internal/sys.SeesSocket].
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
	if uid, ok := sys.PeerUser(local, remote); ok {
		return uid == os.Getuid() || uid == 0
	}
	a, ok := remote.(*net.TCPAddr)
	return ok && !a.IP.IsLoopback()
}
