package blocking

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/crash"
	"pollux/internal/gate"
	"pollux/internal/ide/attach"
	"pollux/internal/mcp"
	"pollux/internal/outbox"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

const (
	// Ext is the extension of a lock file.
	Ext = ".lock"
	// MaxLock bounds the size of a lock file, in bytes.
	MaxLock = 1 << 20
	// CheckInterval is the interval at which a server checks its lock. An agent
	// that starts looks for locks for 30 s.
	CheckInterval = time.Second
	// maxSessions is far above what a person runs.
	maxSessions = 64
)

// A Mark distinguishes a companion's lock from the locks of other programs.
type Mark struct {
	// Since is when the companion started, in milliseconds since the Unix epoch.
	Since int64 `json:"since"`
	// Host is the machine or container where the PID and the address count.
	Host string `json:"host"`
}

// Here returns the Host of this process. Containers may have the name of their host,
// and machines that share a home have equal namespaces.
func Here() string {
	host, _ := os.Hostname()
	return strings.TrimSpace(host + " " + proc.Namespace())
}

// Stale reports whether the mark belongs to a companion that was killed on this
// machine. pid is the companion's process.
func (m *Mark) Stale(pid int) bool { return m != nil && m.Host == Here() && !proc.Alive(pid) }

// RemoveStale removes a lock file of a companion that was killed on this machine, and
// leaves any other.
func RemoveStale(path string) error {
	var lock struct {
		PID    int   `json:"pid"`
		Pollux *Mark `json:"pollux"`
	}
	data, err := disk.ReadFile(path, MaxLock)
	if err == nil && json.Unmarshal(data, &lock) == nil && lock.Pollux.Stale(lock.PID) {
		return os.Remove(path)
	}
	return nil
}

// folders returns the real paths of roots: the agents resolve their own folder, but not
// those in a lock.
func folders(roots []string) []string {
	real := make([]string, len(roots))
	for i, root := range roots {
		real[i] = paths.Real(root)
	}
	return real
}

// A Config configures a [Server].
type Config struct {
	attach.Companion
	// Agent is the agent's name. Names has the names of the agents, as people know
	// them, by the names that they send.
	Agent string
	Names map[string]string
	// Dir is the directory of the lock file; that of DefaultDir if empty. The user may have none.
	Dir        string
	DefaultDir func() (string, error)
	// Lock returns what the lock file holds, as JSON, for a workspace with those folders; nil if
	// there must be no file now. One goroutine at a time calls it.
	Lock func(folders []string) any
	// Watched is called after each look at the lock file; may be nil.
	Watched func()
	// Listener receives the connections that Handler serves; nil if the system refused one.
	Listener net.Listener
	Handler  http.Handler
}

// A Server listens for agents, and leads them to it with a lock file. The server of an agent
// embeds it. Its methods may be called at any time, from many goroutines.
type Server struct {
	attach.Companion
	Dir  string // of the lock file; "" if the user has none
	Mark *Mark
	MCP  *mcp.Server
	HTTP *gate.Server

	cfg     Config
	check   outbox.Signal // the file may have to change
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // watch

	mu      sync.Mutex // held while the file changes
	path    string     // empty until Publish and from Unpublish on
	folders []string
	written []byte // what the file holds, unless another program has changed it
	failure string // of the last write; empty if none
}

// NewServer returns a server. Connections are served once [Server.Serve] runs.
func NewServer(cfg Config) *Server {
	if cfg.Dir == "" {
		var err error
		if cfg.Dir, err = cfg.DefaultDir(); err != nil { // other agents may not need it
			cfg.Log.Warn(cfg.Agent+" will not find this companion", "err", err)
		}
	}
	s := &Server{
		Companion: cfg.Companion, Dir: cfg.Dir, Mark: &Mark{Since: time.Now().UnixMilli(), Host: Here()},
		MCP: cfg.Companion.Server(maxSessions, nil),
		cfg: cfg, check: outbox.NewSignal(),
	}
	own := gate.Config{Handler: cfg.Handler, Log: cfg.Log}
	if cfg.Listener != nil {
		own.Listeners = []net.Listener{cfg.Listener}
	}
	s.HTTP = gate.New(own)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Serve serves connections, and looks after the lock file, in the background until [Server.Close].
func (s *Server) Serve() {
	s.HTTP.Serve()
	s.running.Go(s.watch)
}

// Publish writes the lock file with a name, for a workspace with those roots. It removes the
// locks of this user's companions that were killed here, and what they did not finish to write;
// it leaves other programs' locks to them. A failure is only logged: the user may not have the
// agent.
func (s *Server) Publish(name string, roots []string) {
	if s.Dir == "" {
		return
	}
	disk.TempFiles.Remove(s.Dir)
	stale, _ := filepath.Glob(filepath.Join(s.Dir, "*"+Ext))
	for _, path := range stale {
		RemoveStale(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path, s.folders = filepath.Join(s.Dir, name+Ext), folders(roots)
	s.updateLocked()
}

// SetRoots writes the file for a workspace with other roots.
func (s *Server) SetRoots(roots []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders = folders(roots)
	s.updateLocked()
	return nil
}

// Update writes or removes the file, while it is published.
func (s *Server) Update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updateLocked()
}

// Unpublish removes the file.
func (s *Server) Unpublish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked()
	s.path = ""
}

// Kept returns nothing: an editor keeps no port and no token for these agents.
func (s *Server) Kept() (port int, token string) { return 0, "" }

// updateLocked writes or removes the file. It logs a failure once, until another one or a success
// follows.
func (s *Server) updateLocked() {
	if s.path == "" {
		return
	}
	lock := s.cfg.Lock(s.folders)
	if lock == nil {
		s.removeLocked()
		return
	}
	failure := ""
	if err := s.writeLocked(lock); err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != s.failure {
		s.Log.Warn("cannot write the lock file: "+s.cfg.Agent+" will not find this companion", "err", failure)
	}
	s.failure = failure
}

// writeLocked writes the file, unless it holds the same. Only the user can read the file and
// its directory.
func (s *Server) writeLocked(lock any) error {
	data, err := json.Marshal(lock)
	if err != nil {
		return err
	}
	if !s.holdsLocked(data) {
		dir := paths.Real(filepath.Dir(s.path)) // the agents follow a symbolic link
		if err := disk.PrivateDir(dir); err != nil {
			return err
		}
		if err := disk.WriteFile(filepath.Join(dir, filepath.Base(s.path)), data); err != nil {
			return err
		}
	}
	s.written = data
	return nil
}

// removeLocked removes the file, unless another machine or program has written one of this name.
func (s *Server) removeLocked() {
	if s.path != "" && s.written != nil && s.holdsLocked(s.written) {
		os.Remove(s.path)
	}
}

func (s *Server) holdsLocked(data []byte) bool {
	now, err := disk.ReadFile(s.path, MaxLock)
	return err == nil && bytes.Equal(now, data)
}

// Wanted reports whether the user has an agent with a lock directory: the
// directory's parent exists, or a command of these agents does.
func Wanted(dir string, lookPath func(string) (string, error), commands ...string) bool {
	return disk.Exists(filepath.Dir(dir)) || slices.ContainsFunc(commands, func(name string) bool {
		_, err := lookPath(name)
		return err == nil
	})
}

// Check announces that the lock file may have to change. It does not wait.
func (s *Server) Check() { s.check.Set() }

// watch updates the file every [CheckInterval], and when it may have to change: another program
// may have deleted the lock, or may have come or gone.
func (s *Server) watch() {
	defer crash.Report()
	s.check.Every(s.ctx, CheckInterval, func() {
		s.Update()
		if s.cfg.Watched != nil {
			s.cfg.Watched()
		}
	})
}

// StopWatch stops looking after the lock file. It does not wait.
func (s *Server) StopWatch() { s.stop() }

// Close waits until the agents have the answers to the decided changes, for as long as
// ctx allows, and ends all sessions.
func (s *Server) Close(ctx context.Context) error {
	s.StopWatch()
	s.MCP.Close(ctx)
	err := s.HTTP.Close(ctx)
	s.running.Wait()
	return err
}
