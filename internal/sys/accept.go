package sys

import (
	"errors"
	"net"
	"time"
)

// acceptDelay bounds the wait after a failed Accept.
const acceptDelay = time.Second

// Accept calls serve, which must not block, for each connection of a listener
// until the listener is closed. Other errors pass, such as that of too many open
// files: it tries again, after a delay that grows to a second.
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
			delay = min(max(2*delay, 5*time.Millisecond), acceptDelay)
			time.Sleep(delay)
		}
	}
}
