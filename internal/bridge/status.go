package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys"
)

// A Status is how a bridge is, for `pollux status`.
type Status struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Dir     string    `json:"dir"` // it was started in
	Started time.Time `json:"started"`
	Runner  string    `json:"runner"`
	// Running calls have a place in the queue, Waiting ones do not; there are
	// Max places.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	Max     int `json:"max"`
	// Sessions is how many conversations can go on.
	Sessions int            `json:"sessions"`
	Workers  []agent.Worker `json:"workers"`
}

// Status says how the bridge is.
func (b *Bridge) Status() Status {
	s := Status{
		PID: os.Getpid(), Version: b.cfg.Version, Started: b.started, Runner: b.cfg.Runner.Kind, Max: b.queue.max,
		Sessions: len(b.talks.list()), Workers: b.runner.Workers(),
	}
	s.Dir, _ = os.Getwd()
	s.Running, s.Waiting = b.queue.load()
	return s
}

const (
	statusPattern = "bridge-%d.status"
	statusWithin  = 2 * time.Second
)

// Publish lets `pollux status` ask how the bridge is, until stop: whoever
// connects to a socket in the user's private directory is told.
func (b *Bridge) Publish() (stop func(), err error) {
	dir, err := sys.RuntimeDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf(statusPattern, os.Getpid()))
	os.Remove(path) // of a process before us with our number
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	var serving sync.WaitGroup
	serving.Go(func() { b.serveStatus(l) })
	return func() {
		l.Close()
		serving.Wait()
	}, nil
}

// serveStatus answers until the listener is closed.
func (b *Bridge) serveStatus(l net.Listener) {
	sys.Accept(l, func(conn net.Conn) {
		conn.SetDeadline(time.Now().Add(statusWithin))
		json.NewEncoder(conn).Encode(b.Status())
		conn.Close()
	})
}

// Bridges are the bridges that run. What those that were killed have left is
// removed.
func Bridges(ctx context.Context) ([]Status, error) {
	dir, err := sys.RuntimeDir()
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, strings.Replace(statusPattern, "%d", "*", 1)))
	if err != nil {
		return nil, err
	}
	all := []Status{}
	for _, path := range paths {
		s, err := askStatus(ctx, path)
		if err == nil {
			all = append(all, s)
			continue
		}
		var pid int
		if n, _ := fmt.Sscanf(filepath.Base(path), statusPattern, &pid); n == 1 && !sys.Alive(pid) {
			os.Remove(path)
		}
	}
	return all, nil
}

func askStatus(ctx context.Context, path string) (s Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(statusWithin))
	return s, json.NewDecoder(conn).Decode(&s)
}

// String is the status in lines.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bridge in %s\n", visible(s.Dir))
	fmt.Fprintf(&b, "  process %d, up %s, %s, %d of %d calls running, %d waiting, %d sessions\n",
		s.PID, seconds(time.Since(s.Started)), s.Runner, s.Running, s.Max, s.Waiting, s.Sessions)
	for _, w := range s.Workers {
		fmt.Fprintf(&b, "  CLI   %s\n", workerLine(w))
	}
	return b.String()
}

// workerLine is a warm process in a line.
func workerLine(w agent.Worker) string {
	state := "idle for " + seconds(time.Since(w.Used))
	if w.Running > 0 {
		state = strconv.Itoa(w.Running) + " running"
	}
	return fmt.Sprintf("process %d in %s, %s, %d MB, %d sessions, up %s", w.PID, visible(w.Dir), state, w.Memory>>20, w.Sessions, seconds(time.Since(w.Started)))
}
