package ide

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"pollux/internal/editor"
	"pollux/internal/sys"
)

// A socket is the companion's private socket for processes that it did not
// start: shell hooks, `pollux status`, other clients and, after a protocol's
// preamble, agents. Nobody else can open its directory, so it needs no
// authentication.
type socket struct {
	path     string
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// listenSocket listens on the socket of the companion with that port.
func listenSocket(port int) (*socket, error) {
	editor.Sockets() // prunes
	path, err := editor.SocketPath(os.Getpid(), port)
	if err != nil {
		return nil, err
	}
	s := &socket{path: path, conns: make(map[net.Conn]bool)}
	os.Remove(path) // left by a killed process that had our PID
	if s.listener, err = net.Listen("unix", path); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		s.listener.Close()
		return nil, err
	}
	return s, nil
}

// serve calls handle for each connection until the socket is closed.
func (s *socket) serve(handle func(net.Conn)) {
	s.serving.Go(func() {
		sys.Accept(s.listener, func(conn net.Conn) {
			s.serving.Go(func() {
				s.track(conn, true)
				defer s.track(conn, false)
				handle(conn)
			})
		})
	})
}

// serveConn serves an agent if the connection starts with a server's preamble,
// and otherwise a client, which the companion refuses unless it speaks the editor
// protocol.
func (h *Host) serveConn(conn net.Conn) {
	defer conn.Close()
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

// socketServer returns a server whose preamble begins with start, or nil.
func (h *Host) socketServer(start string) SocketServer {
	for _, s := range h.servers {
		if s, ok := s.(SocketServer); ok && strings.HasPrefix(s.Preamble(), start) {
			return s
		}
	}
	return nil
}

func (s *socket) track(conn net.Conn, add bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if add {
		s.conns[conn] = true
		if s.closed {
			conn.Close()
		}
	} else {
		delete(s.conns, conn)
	}
}

func (s *socket) remove() { os.Remove(s.path) }

func (s *socket) close() {
	s.listener.Close() // removes the file
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}
