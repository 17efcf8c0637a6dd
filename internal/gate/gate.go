// Package gate keeps clients without a token from using up a server's connections.
package gate

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// DefaultTimeout is how long a connection may live before it authenticates.
	DefaultTimeout = 10 * time.Second
	// MaxStrangers bounds the connections that have not authenticated. It is far
	// above what a browser and some CLIs open at once, and far below the usual
	// limit of open files.
	MaxStrangers = 64
)

// A Gate bounds how many connections clients without the token can hold, and for
// how long. A new connection replaces the oldest one, so that the user's own CLI,
// which authenticates with its first request, always gets in.
type Gate struct {
	timeout time.Duration

	mu        sync.Mutex
	strangers []stranger // the oldest first
	timer     *time.Timer
}

// New returns a gate that closes a connection that has not authenticated within the
// timeout; DefaultTimeout if 0.
func New(timeout time.Duration) *Gate {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return &Gate{timeout: timeout}
}

// A stranger is a connection that has not authenticated.
type stranger struct {
	conn  net.Conn
	since time.Time
}

// Enter counts a new connection. It is the ConnContext of an [http.Server]. The
// request's context carries what [Authenticated] calls.
func (g *Gate) Enter(ctx context.Context, conn net.Conn) context.Context {
	g.mu.Lock()
	g.strangers = append(g.strangers, stranger{conn, time.Now()})
	var oldest net.Conn
	if len(g.strangers) > MaxStrangers {
		oldest = g.strangers[0].conn
		g.strangers = slices.Delete(g.strangers, 0, 1)
	}
	g.armLocked()
	g.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return context.WithValue(ctx, key{}, func() { g.leave(conn) })
}

// leave forgets a connection that has authenticated or ended.
func (g *Gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strangers = slices.DeleteFunc(g.strangers, func(s stranger) bool { return s.conn == conn })
}

// State is the ConnState of an [http.Server].
func (g *Gate) State(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		g.leave(conn)
	}
}

// Sweep closes the connections whose time has run out at now.
func (g *Gate) Sweep(now time.Time) {
	g.mu.Lock()
	n := 0
	for n < len(g.strangers) && now.Sub(g.strangers[n].since) >= g.timeout {
		n++
	}
	over := slices.Clone(g.strangers[:n])
	g.strangers = slices.Delete(g.strangers, 0, n)
	g.timer = nil
	g.armLocked()
	g.mu.Unlock()
	for _, s := range over {
		s.conn.Close()
	}
}

func (g *Gate) armLocked() {
	if g.timer == nil && len(g.strangers) > 0 {
		g.timer = time.AfterFunc(time.Until(g.strangers[0].since.Add(g.timeout)), func() { g.Sweep(time.Now()) })
	}
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

type key struct{}

// Authenticated reports that the client of a request has authenticated, for
// handlers that check that themselves. The gate closes the connections of other
// clients after a short time.
func Authenticated(ctx context.Context) {
	if f, ok := ctx.Value(key{}).(func()); ok {
		f()
	}
}
