package companion

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"pollux/internal/adapter"
)

// A crowded listener has no descriptor for its first connection.
type crowded struct {
	net.Listener
	failed atomic.Bool
}

func (l *crowded) Accept() (net.Conn, error) {
	if !l.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// After a flood of connections had used up the descriptors for a moment, the
// companion's socket was dead for good.
func TestSocketOutlivesAFailedAccept(t *testing.T) {
	w := newWorld(t, nil)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{path: path, listener: &crowded{Listener: l}, conns: make(map[net.Conn]bool)}
	s.serve(w.Companion)
	defer s.close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := adapter.NewClient(conn, adapter.Handler{})
	defer c.Close()
	if _, err := c.Initialize(t.Context(), adapter.InitializeParams{}); err != nil {
		t.Errorf("the socket does not answer: %v", err)
	}
}
