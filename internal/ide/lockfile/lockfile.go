// Package lockfile writes and checks the lock files through which agents find a
// companion. The package of an agent knows the directory, the name and the fields.
package lockfile

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/outbox"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
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

// A Mark distinguishes a companion's lock from the locks of other programs.
type Mark struct {
	// Since is when the companion started, in milliseconds since the Unix epoch.
	Since int64 `json:"since"`
	// Host is the machine or container where the PID and the address count.
	Host string `json:"host"`
}

// newMark returns the mark of a companion that starts now, in this process.
func newMark() *Mark { return &Mark{Since: time.Now().UnixMilli(), Host: Here()} }

// Here returns the Host of this process. Containers may have the name of their host,
// and machines that share a home have equal namespaces.
func Here() string {
	host, _ := os.Hostname()
	return strings.TrimSpace(host + " " + proc.Namespace())
}

// Stale reports whether the mark belongs to a companion that was killed on this
// machine. pid is the companion's process.
func (m *Mark) Stale(pid int) bool { return m != nil && m.Host == Here() && !proc.Alive(pid) }

// folders returns the real paths of roots: the agents resolve their own folder, but not
// those in a lock.
func folders(roots []string) []string {
	real := make([]string, len(roots))
	for i, root := range roots {
		real[i] = paths.Real(root)
	}
	return real
}

// A File is the lock file of a server, which embeds it. Its methods may be called at any time, from
// many goroutines.
type File struct {
	// Dir is the directory of the file; "" if the user has none.
	Dir  string
	Mark *Mark

	log    *slog.Logger
	agent  string
	lock   func(folders []string) any
	check  outbox.Signal   // the file may have to change
	ctx    context.Context // ends with Watch
	cancel context.CancelFunc

	mu      sync.Mutex // held while the file changes
	path    string     // empty until Publish and from Unpublish on
	folders []string
	written []byte // what the file holds, unless another program has changed it
	failure string // of the last write; empty if none
}

// New returns the lock file of a server for an agent with that name. lock returns what the file
// holds, as JSON, for a workspace with those folders; nil if there must be no file now. One
// goroutine at a time calls it.
func New(log *slog.Logger, agent, dir string, lock func(folders []string) any) *File {
	f := &File{Dir: dir, Mark: newMark(), log: log, agent: agent, lock: lock, check: outbox.NewSignal()}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Publish writes the file for a workspace with those roots. A failure is only logged: the user may
// not have the agent.
func (f *File) Publish(name string, roots []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.path, f.folders = filepath.Join(f.Dir, name+Ext), folders(roots)
	f.updateLocked()
}

// SetRoots writes the file for a workspace with other roots.
func (f *File) SetRoots(roots []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.folders = folders(roots)
	f.updateLocked()
	return nil
}

// Update writes or removes the file, while it is published.
func (f *File) Update() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updateLocked()
}

// Unpublish removes the file.
func (f *File) Unpublish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeLocked()
	f.path = ""
}

// updateLocked writes or removes the file. It logs a failure once, until another one or a success
// follows.
func (f *File) updateLocked() {
	if f.path == "" {
		return
	}
	lock := f.lock(f.folders)
	if lock == nil {
		f.removeLocked()
		return
	}
	failure := ""
	if err := f.writeLocked(lock); err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != f.failure {
		f.log.Warn("cannot write the lock file: "+f.agent+" will not find this companion", "err", failure)
	}
	f.failure = failure
}

// writeLocked writes the file, unless it holds the same. Only the user can read the file and
// its directory.
func (f *File) writeLocked(lock any) error {
	data, err := json.Marshal(lock)
	if err != nil {
		return err
	}
	if !f.holdsLocked(data) {
		dir := paths.Real(filepath.Dir(f.path)) // the agents follow a symbolic link
		if err := disk.PrivateDir(dir); err != nil {
			return err
		}
		if err := disk.WriteFile(filepath.Join(dir, filepath.Base(f.path)), data); err != nil {
			return err
		}
	}
	f.written = data
	return nil
}

// removeLocked removes the file, unless another machine or program has written one of this name.
func (f *File) removeLocked() {
	if f.path != "" && f.written != nil && f.holdsLocked(f.written) {
		os.Remove(f.path)
	}
}

func (f *File) holdsLocked(data []byte) bool {
	now, err := disk.ReadFile(f.path, MaxSize)
	return err == nil && bytes.Equal(now, data)
}

// Wanted reports whether the user has an agent with a lock directory: the
// directory's parent exists, or a command of these agents does.
func Wanted(dir string, lookPath func(string) (string, error), commands ...string) bool {
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		return true
	}
	return slices.ContainsFunc(commands, func(name string) bool {
		_, err := lookPath(name)
		return err == nil
	})
}

// Check makes [File.Watch] update the file soon. It does not wait.
func (f *File) Check() { f.check.Set() }

// Watch updates the file every [CheckInterval], and when it may have to change, until
// [File.StopWatch]: another program may have deleted the lock, or may have come or gone. It calls
// after, which may be nil, after each update.
func (f *File) Watch(after func()) {
	tick := time.NewTicker(CheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-f.check:
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
		f.Update()
		if after != nil {
			after()
		}
	}
}

// StopWatch ends [File.Watch]. It does not wait.
func (f *File) StopWatch() { f.cancel() }
