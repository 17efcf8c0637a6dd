package companion

import (
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"pollux/internal/editor"
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
	c := editor.NewClient(conn, editor.Handler{})
	defer c.Close()
	if _, err := c.Initialize(t.Context(), editor.InitializeParams{}); err != nil {
		t.Errorf("the socket does not answer: %v", err)
	}
}

// Whoever attaches takes from a companion's environment all that it sets.
func TestEnvNames(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Connect = []string{"pollux", "connect"} })
	env := w.Env()
	if known := editor.KnownEnv(env); !maps.Equal(known, env) {
		t.Errorf("a companion sets %v, of which %v are known", slices.Sorted(maps.Keys(env)), slices.Sorted(maps.Keys(known)))
	}
	for _, name := range editor.EnvNames {
		if env[name] == "" && name != "REMOTE_CONTAINERS" { // set in a container only
			t.Errorf("a companion does not set %s", name)
		}
	}
}
