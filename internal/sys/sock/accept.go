package sock

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// maxAcceptDelay limits the delay after a failed Accept.
const maxAcceptDelay = time.Second

// Accept calls serve, which must not block, for each connection of a listener
// until the listener is closed. After any other error, such as too many open
// files, it tries again with a delay that grows to a second.
func Accept(l net.Listener, serve func(net.Conn)) {
	var delay time.Duration
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			delay = 0
			serve(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
			time.Sleep(delay)
		}
	}
}

// ServeConns calls serve on a new goroutine for each connection of a listener, and
// closes the connection when serve returns. When ctx ends, it closes the listener
// and all connections, and returns once every serve has returned.
func ServeConns(ctx context.Context, l net.Listener, serve func(net.Conn)) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var serving sync.WaitGroup
	Accept(l, func(conn net.Conn) {
		serving.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			serve(conn)
		})
	})
	serving.Wait()
}
