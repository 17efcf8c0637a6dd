package companion

import (
	"bufio"
	"io"
	"net"
	"os"
	"sync"

	"pollux/internal/editor"
	"pollux/internal/sys"
)

// A socket is the companion's private door for processes that it did not
// start: shell hooks, `pollux status`, further surfaces, and, after
// [editor.MCPPreamble], the stdio transport of a CLI. Its directory is the
// user's alone, which is the authentication.
type socket struct {
	path     string
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func (c *Companion) listenSocket() (*socket, error) {
	editor.Sockets() // prunes
	path, err := editor.SocketPath(os.Getpid(), c.server.Port())
	if err != nil {
		return nil, err
	}
	s := &socket{path: path, conns: make(map[net.Conn]bool)}
	os.Remove(path) // of a killed process that had our PID
	if s.listener, err = net.Listen("unix", path); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		s.listener.Close()
		return nil, err
	}
	return s, nil
}

// serve answers on the socket until it is closed.
func (s *socket) serve(c *Companion) {
	s.serving.Go(func() {
		sys.Accept(s.listener, func(conn net.Conn) {
			s.serving.Go(func() {
				s.track(conn, true)
				defer s.track(conn, false)
				c.serveSocket(conn)
			})
		})
	})
}

func (c *Companion) serveSocket(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	rwc := struct {
		io.Reader
		io.WriteCloser
	}{r, conn}
	switch first, err := r.Peek(1); {
	case err != nil:
	case first[0] == editor.MCPPreamble[0]:
		if line, err := r.ReadString('\n'); err == nil && line == editor.MCPPreamble {
			c.server.ServeConn(rwc)
		}
	default:
		c.Attach(rwc)
	}
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
