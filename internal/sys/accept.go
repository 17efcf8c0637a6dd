package sys

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
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

// maxSocketPath is the longest path of a Unix socket in bytes: 103 on macOS, 107 on Linux
// and Windows.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// ErrLongPath reports that the path of a Unix socket is longer than the system allows.
var ErrLongPath = errors.New("the path of the socket is too long")

func checkSocketPath(path string) error {
	if len(path) <= maxSocketPath {
		return nil
	}
	// The message does not repeat the path, so that the next step fits on a line.
	return fmt.Errorf("%w (%d bytes; this system allows %d)", ErrLongPath, len(path), maxSocketPath)
}

// ListenUnix listens on a Unix socket that only the user can connect to. The error is
// [ErrLongPath] if the path is too long.
func ListenUnix(path string) (net.Listener, error) {
	if err := checkSocketPath(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// ListenPrivate listens where only the user can connect, at an address of its own: on a
// unix socket in the directory of [RuntimeDir], or on a named pipe on Windows. name is a
// part of the address. scheme is "unix" or "pipe".
func ListenPrivate(name string) (l net.Listener, scheme, address string, err error) {
	return listenPrivate(name)
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
