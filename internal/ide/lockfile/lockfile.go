// Package lockfile writes and checks the lock files through which agents find a
// companion. The package of an agent knows the directory, the name and the fields.
package lockfile

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/outbox"
	"pollux/internal/paths"
	"pollux/internal/sys"
)

const (
	// Ext is the extension of a lock file.
	Ext = ".lock"
	// MaxSize bounds the size of a lock file, in bytes.
	MaxSize = 1 << 20
	// CheckInterval is the interval at which a server checks its lock. An agent
	// that starts looks for locks for 30 s.
	CheckInterval = time.Second
)

// A Mark tells a companion's lock from those of other programs.
type Mark struct {
	// Since is when the companion started, in milliseconds since the Unix epoch.
	Since int64 `json:"since"`
	// Host is the machine or container where the PID and the address count.
	Host string `json:"host"`
}

// NewMark returns the mark of a companion that starts now, in this process.
func NewMark() *Mark { return &Mark{Since: time.Now().UnixMilli(), Host: Here()} }

// Here returns the Host of this process. Containers may have the name of their host,
// and machines that share a home have equal namespaces.
func Here() string {
	host, _ := os.Hostname()
	return strings.TrimSpace(host + " " + sys.Namespace())
}

// Stale reports whether the mark is that of a companion which was killed here. pid is
// the companion's process.
func (m *Mark) Stale(pid int) bool { return m != nil && m.Host == Here() && !sys.Alive(pid) }

// Folders returns the real paths of roots: the agents resolve their own folder, but not
// those in a lock.
func Folders(roots []string) []string {
	folders := make([]string, len(roots))
	for i, root := range roots {
		folders[i] = paths.Real(root)
	}
	return folders
}

// Write writes a lock file as JSON, unless the file holds the same. Only the user can
// read the file and its directory.
func Write(path string, lock any) error {
	data, err := json.Marshal(lock)
	if err != nil {
		return err
	}
	if now, err := sys.ReadFile(path, MaxSize); err == nil && string(now) == string(data) {
		return nil
	}
	// The agents follow a symbolic link.
	dir := paths.Real(filepath.Dir(path))
	if err := sys.PrivateDir(dir); err != nil {
		return err
	}
	return sys.WriteFile(filepath.Join(dir, filepath.Base(path)), data)
}

// A Writer writes a lock file again and again. It logs a failure once, until another one
// or a success follows. Only one goroutine may use it at a time.
type Writer struct {
	Log *slog.Logger
	// Agent is the name of the agent that reads the file.
	Agent   string
	failure string // of the last Write; empty if none
}

// Write calls the function [Write].
func (w *Writer) Write(path string, lock any) {
	failure := ""
	if err := Write(path, lock); err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != w.failure {
		w.Log.Warn("cannot write the lock file: "+w.Agent+" will not find this companion", "err", failure)
	}
	w.failure = failure
}

// Wanted reports whether somebody here uses an agent with a lock directory: the
// directory's parent exists, or one of the agents' commands does.
func Wanted(dir string, lookPath func(string) (string, error), commands ...string) bool {
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		return true
	}
	return slices.ContainsFunc(commands, func(name string) bool {
		_, err := lookPath(name)
		return err == nil
	})
}

// Watch calls update every [CheckInterval], and when check is set, until ctx ends: another
// program may have deleted the lock, or may have come or gone.
func Watch(ctx context.Context, check outbox.Signal, update func()) {
	tick := time.NewTicker(CheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-check:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		update()
	}
}
