package ide

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/sys/sock"
)

// A socket is the companion's private socket for processes that it did not
// start: shell hooks, `pollux status`, other clients and, after a protocol's
// preamble, agents. No other user can open its directory, so it needs no
// authentication.
type socket struct {
	path     string
	listener net.Listener
	ctx      context.Context // ends when the socket is closed
	cancel   context.CancelFunc
	serving  sync.WaitGroup
}

// listenSocket listens on the socket of the companion with that port.
func listenSocket(port int) (*socket, error) {
	editor.Sockets() // prunes
	path, err := editor.SocketPath(os.Getpid(), port)
	if err != nil {
		return nil, err
	}
	os.Remove(path) // left by a killed process that had our PID
	l, err := sock.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("%w: set POLLUX_RUNTIME_DIR to a short path of a directory you own", err)
	}
	s := &socket{path: path, listener: l}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// serve calls handle for each connection until the socket is closed.
func (s *socket) serve(handle func(net.Conn)) {
	s.serving.Go(func() { sock.ServeConns(s.ctx, s.listener, handle) })
}

func (s *socket) remove() { os.Remove(s.path) }

// close removes the socket, ends its connections and waits for them.
func (s *socket) close() {
	s.cancel()
	s.listener.Close() // even if serve was never called
	s.serving.Wait()
}

// serveConn serves an agent if the connection starts with a server's preamble,
// and otherwise a client, which the companion refuses unless it speaks the editor
// protocol.
func (h *Host) serveConn(conn net.Conn) {
	confined := sock.ConfinedPeer(conn)
	r := bufio.NewReader(conn)
	rwc := struct {
		io.Reader
		io.WriteCloser
	}{r, conn}
	for n := 1; ; n++ { // a client may send fewer bytes than a preamble has
		start, err := r.Peek(n)
		if err != nil {
			return
		}
		s := h.socketServer(string(start))
		if s == nil {
			if confined {
				companion.Serve(rwc, refuse)
				return
			}
			h.Companion.Attach(rwc)
			return
		}
		if n == len(s.Preamble()) {
			r.Discard(n)
			s.ServeConn(rwc)
			return
		}
	}
}

// refuse answers an asked agent behind the wall, which could otherwise accept its own change
// and make the companion write the file.
func refuse(editor.InitializeParams) (*companion.Companion, error) {
	return nil, sock.ErrConfined
}

// socketServer returns a server whose preamble begins with start, or nil.
func (h *Host) socketServer(start string) SocketServer {
	for _, s := range h.servers {
		if s, ok := s.(SocketServer); ok && strings.HasPrefix(s.Preamble(), start) {
			return s
		}
	}
	return nil
}
