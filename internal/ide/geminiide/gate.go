package geminiide

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"pollux/internal/editor"
)

const (
	defaultAuthTimeout = 10 * time.Second
	// maxStrangers bounds the connections that have not authenticated. It is far
	// above what a browser and some CLIs open at once, and far below the usual
	// limit of open files.
	maxStrangers = 64
	// refusalTimeout is how long the rest of a refused request may take. Without
	// it, a client that is still sending would see a broken connection instead of
	// the answer.
	refusalTimeout = time.Second
)

// A gate bounds how many connections clients without the token can hold, and for
// how long. A new connection replaces the oldest one, so that the user's own CLI,
// which authenticates with its first request, always gets in.
type gate struct {
	timeout time.Duration

	mu        sync.Mutex
	strangers []stranger // the oldest first
	timer     *time.Timer
}

// A stranger is a connection that has not authenticated.
type stranger struct {
	conn  net.Conn
	since time.Time
}

// enter counts a new connection. It is the ConnContext of an [http.Server]. The
// request's context carries what [editor.Authenticated] calls.
func (g *gate) enter(ctx context.Context, conn net.Conn) context.Context {
	g.mu.Lock()
	g.strangers = append(g.strangers, stranger{conn, time.Now()})
	var oldest net.Conn
	if len(g.strangers) > maxStrangers {
		oldest = g.strangers[0].conn
		g.strangers = slices.Delete(g.strangers, 0, 1)
	}
	g.armLocked()
	g.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return editor.WithAuthenticated(ctx, func() { g.leave(conn) })
}

// leave forgets a connection that has authenticated or ended.
func (g *gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.strangers = slices.DeleteFunc(g.strangers, func(s stranger) bool { return s.conn == conn })
}

// state is the ConnState of an [http.Server].
func (g *gate) state(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		g.leave(conn)
	}
}

// sweep closes the connections whose time has run out.
func (g *gate) sweep(now time.Time) {
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

func (g *gate) armLocked() {
	if g.timer == nil && len(g.strangers) > 0 {
		g.timer = time.AfterFunc(time.Until(g.strangers[0].since.Add(g.timeout)), func() { g.sweep(time.Now()) })
	}
}

// turnAway refuses a request and ends its connection, without waiting for a body
// that may never arrive.
func turnAway(w http.ResponseWriter, status int, message string) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusalTimeout))
	w.Header().Set("Connection", "close")
	refuse(w, status, message)
}
