package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
	"pollux/internal/termtext"
)

// A Status describes a bridge, for `pollux status`.
type Status struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Dir     string    `json:"dir"` // the directory it was started in
	Started time.Time `json:"started"`
	Runner  string    `json:"runner"`
	// Running calls have their turn, Waiting calls wait for it. At most Max calls
	// of an account run at the same time.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	Max     int `json:"max"`
	// Sessions is the number of conversations that can be continued.
	Sessions int `json:"sessions"`
	// Shared reports whether the bridge uses the processes of a pool. Pool is the
	// pool's process, or 0 while the bridge is not connected to one.
	Shared bool `json:"shared,omitempty"`
	Pool   int  `json:"pool,omitempty"`
	// Workers are the bridge's own processes, without the pool's.
	Workers []agent.Worker `json:"workers"`
}

// A pooled runner uses the processes of a pool. It has its own processes only while it
// cannot reach a pool.
type pooled interface{ Pool() int }

// Status returns the state of the bridge.
func (b *Bridge) Status() Status {
	s := Status{
		PID: os.Getpid(), Version: b.cfg.Version, Started: b.started, Runner: b.cfg.Kind, Max: b.cfg.MaxConcurrent,
		Sessions: len(b.conversations.list()), Workers: b.workers(),
	}
	for _, a := range b.agents {
		if r, ok := a.opened().(pooled); ok {
			s.Shared, s.Pool = true, cmp.Or(s.Pool, r.Pool())
		}
	}
	s.Dir, _ = os.Getwd()
	s.Running, s.Waiting = int(b.running.Load()), int(b.waiting.Load())
	return s
}

const (
	statusPattern = "bridge-%d.status"
	statusTimeout = 2 * time.Second
)

// leftStatus are the sockets of killed bridges.
var leftStatus = sock.Leftovers(strings.Replace(statusPattern, "%d", "*", 1))

// Publish lets `pollux status` find the bridge until it closes: it serves the
// status on a socket in the user's private directory.
func (b *Bridge) Publish() error {
	dir, err := disk.RuntimeDir()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprintf(statusPattern, os.Getpid()))
	os.Remove(path) // left by an earlier process with the same ID
	l, err := sock.Listen(path)
	if err != nil {
		return fmt.Errorf("%w: set POLLUX_RUNTIME_DIR to a short path of a directory you own", err)
	}
	if err := b.enter(); err != nil {
		l.Close()
		return err
	}
	context.AfterFunc(b.life, func() { l.Close() })
	go func() {
		defer b.work.Done()
		b.serveStatus(l)
	}()
	return nil
}

// serveStatus serves connections until the listener is closed.
func (b *Bridge) serveStatus(l net.Listener) {
	sock.Accept(l, func(conn net.Conn) {
		conn.SetDeadline(time.Now().Add(statusTimeout))
		json.NewEncoder(conn).Encode(b.Status())
		conn.Close()
	})
}

// Bridges returns the status of all running bridges. It removes the sockets of
// bridges that were killed.
func Bridges(ctx context.Context) ([]Status, error) {
	dir, err := disk.RuntimeDir()
	if err != nil {
		return nil, err
	}
	leftStatus.Remove(dir)
	sockets, err := filepath.Glob(filepath.Join(dir, leftStatus.Pattern))
	if err != nil {
		return nil, err
	}
	all := []Status{}
	for _, path := range sockets {
		if s, err := askStatus(ctx, path); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

func askStatus(ctx context.Context, path string) (s Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	conn, err := sock.Dial(ctx, path)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(statusTimeout))
	return s, json.NewDecoder(conn).Decode(&s)
}

// String returns the status in lines.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bridge in %s\n", termtext.Line(paths.Short(s.Dir), 0))
	fmt.Fprintf(&b, "  process %d, up %s, %s, %d of %d calls running, %d waiting, conversations: %d\n",
		s.PID, seconds(time.Since(s.Started)), s.Runner, s.Running, s.Max, s.Waiting, s.Sessions)
	switch {
	case s.Pool != 0:
		fmt.Fprintf(&b, "  its agents belong to the pool with process %d\n", s.Pool)
	case s.Shared && len(s.Workers) == 0:
		b.WriteString("  not connected to the pool: its next call connects\n")
	}
	for _, w := range s.Workers {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	return b.String()
}
