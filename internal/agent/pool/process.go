package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/proc"
)

const (
	// stopTimeout is how long a process may take to end after it was asked to.
	stopTimeout = 5 * time.Second
	// stderrTimeout limits the wait for the rest of standard error after the
	// process has ended.
	stderrTimeout = 200 * time.Millisecond
	// maxStderr limits how much of standard error is kept: the last part, or the first and the
	// last one of a process that answers once.
	maxStderr = 64 << 10
	// preparedTTL is how long a prepared session may be used. It does not see
	// later changes to the workspace.
	preparedTTL = 30 * time.Second
	// maxPrepared limits the prepared sessions of a process.
	maxPrepared = 8
)

// A process is an agent that serves requests in one workspace.
type process struct {
	agent   *agent.Agent
	how     *agent.Process
	model   string       // the requested one, if this is a [agent.Driver.OneShot] process
	most    int64        // its output in bytes, at most; 0 for any
	source  agent.Source // of the request that started it
	program agent.Program
	key     key
	inputs  string // the state of each file that it has read
	origin  string // the program, the source and the inputs; failures are counted per origin
	wall    agent.Wall
	spawn   func(*exec.Cmd) (spawned, error)
	log     *slog.Logger
	began   time.Time

	// start sets these before ready is closed.
	temp     string   // its own directory
	unlinked []string // credentials that the process cannot read
	child    child
	conn     agent.Conn
	stderr   io.ReadCloser
	logs     *logs
	timeout  time.Duration // for requests that need no model
	err      error         // why it did not start

	ready    chan struct{}   // closed when it has started, or failed to
	done     chan struct{}   // closed when it has ended and its files are removed
	making   chan struct{}   // holds a token while a session is being made: several at the same time take seconds
	stopping context.Context // ends when the process must end; askStop ends it
	askStop  context.CancelFunc
	killing  context.Context // ends when it must end immediately, and stopping with it; askKill ends it
	askKill  context.CancelFunc
	readers  sync.WaitGroup
	printed  atomic.Int64 // bytes of output

	// Pool.mu guards these.
	awaited        time.Time // when the first request began to wait for its start
	running        int       // requests, including those that are about to be sent
	used           time.Time
	retired        bool // it ends when nothing runs
	preparing, due bool // whether sessions are being prepared, and whether another one is due

	mu         sync.Mutex          // guards the fields below
	attempts   map[string]*attempt // the requests in progress, by session
	prepared   []*session          // they wait for a request
	demand     int                 // how many prepared sessions the recent requests would have used
	unprepared bool                // a session could not be prepared
	mute       bool                // it did not answer a request for a session
	sessions   int
	latest     string // the ID of the session that was made last
	errText    []byte
	unenforced bool // it ignores its policy
}

// A child is a [proc.Child], or a test's.
type child interface {
	PID() int
	Done() <-chan struct{}
	Stop(grace time.Duration)
	ExitCode() int
}

// A spawned is a child with its streams.
type spawned struct {
	child
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
}

func spawn(cmd *exec.Cmd) (spawned, error) {
	c, err := proc.StartPiped(cmd, proc.Stdin|proc.Stdout|proc.Stderr)
	if err != nil {
		return spawned{}, fmt.Errorf("%w: %w", errNotStarted, err)
	}
	return spawned{c.Child, c.Stdin, c.Stdout, c.Stderr}, nil
}

// A session is a conversation with an agent, in one process.
type session struct {
	w  *process
	id string
	// model is the selected model, and initial the one for requests that name none; ""
	// if the agent has not said it. One request at a time uses the session.
	model, initial string
	prepared       time.Time // for a later request; zero if it was made for one
}

func newProcess(row *agent.Agent, from agent.Source, program agent.Program, k key, wall agent.Wall, log *slog.Logger) *process {
	w := &process{
		agent: row, how: row.Warm, source: from, program: program, key: k, wall: wall, spawn: spawn, log: log, began: time.Now(), used: time.Now(), attempts: make(map[string]*attempt),
		ready: make(chan struct{}), done: make(chan struct{}), making: make(chan struct{}, 1),
	}
	w.killing, w.askKill = context.WithCancel(context.Background())
	w.stopping, w.askStop = context.WithCancel(w.killing)
	return w
}

// answersOnce makes it a [agent.Driver.OneShot] process, which has not started yet.
func (w *process) answersOnce(model string, most int64) {
	w.how, w.model, w.most = w.agent.OneShot, model, most
	w.spawn = w.spawnOnce
}

// once reports whether it is a [agent.Driver.OneShot] process.
func (w *process) once() bool { return w.how.Ended != nil }

// floods reports whether it has printed more than it may.
func (w *process) floods() bool { return w.most > 0 && w.printed.Load() > w.most }

// start starts the process and performs the handshake, within the timeout. If it
// fails, the process has ended.
func (w *process) start(ctx context.Context, temp *agent.TempDir, timeout time.Duration) error {
	w.timeout = timeout
	err := w.launch(temp)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		defer context.AfterFunc(w.stopping, cancel)()
		if err = w.conn.Initialize(ctx); err == nil {
			return nil
		}
		err = fmt.Errorf("no answer to initialize (%w)", err)
	}
	w.stop()
	w.cleanUp()
	if cause := w.cause(); cause != "" {
		err = fmt.Errorf("%w: %s", err, cause)
	}
	return err
}

func (w *process) launch(temp *agent.TempDir) (err error) {
	if w.temp, err = temp.Make("worker-"); err != nil {
		return noRoom(err, temp.Path)
	}
	launch := agent.Launch{Dir: w.key.dir, TempDir: w.temp, Model: w.model, Change: w.key.change, Env: w.source.Env}
	command, err := w.how.Command(launch)
	if err != nil && w.once() {
		err = noRoom(err, temp.Path)
	}
	if err != nil {
		return err
	}
	if w.unlinked = command.Unlinked; len(w.unlinked) > 0 {
		w.log.Warn("change mode runs without these files of the agent, which cannot be linked", "files", w.unlinked)
	}
	cmd, err := w.wall.Cmd(w.agent, command, w.program, launch)
	if err != nil {
		return err
	}
	w.logs = newLogs(command.Logs, w.noter)
	started, err := w.spawn(cmd)
	if err != nil {
		return err
	}
	w.child, w.stderr = started.child, started.stderr
	w.readers.Go(w.readStderr)
	w.conn = w.how.Connect(started.stdout, started.stdin, w.key.change, w)
	return nil
}

// alive reports whether the process is running and connected.
func (w *process) alive() bool { return !isClosed(w.child.Done()) && !isClosed(w.conn.Done()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stop ends the process. Only the supervisor calls it.
func (w *process) stop() {
	if w.child == nil {
		return
	}
	defer context.AfterFunc(w.killing, func() { w.child.Stop(0) })()
	w.child.Stop(stopTimeout)
}

// cleanUp closes the connection and removes the files of a process that has
// ended.
func (w *process) cleanUp() {
	if w.child != nil {
		w.conn.Close()
		// Child processes may hold it open.
		closing := time.AfterFunc(stderrTimeout, func() { w.stderr.Close() })
		w.readers.Wait()
		closing.Stop()
		w.stderr.Close()
		w.logs.read()
	}
	if w.temp == "" {
		return
	}
	if err := os.RemoveAll(w.temp); err != nil {
		w.log.Warn("the files of a process could not be removed", "error", err)
	}
}

// cause returns the explanation of a failure on standard error.
func (w *process) cause() string {
	w.mu.Lock()
	text := string(w.errText)
	w.mu.Unlock()
	return w.agent.Cause(w.source.Env, text)
}

// session returns a new session, which may have been prepared.
func (w *process) session(ctx context.Context) (*session, error) {
	if s := w.takePrepared(); s != nil {
		return s, nil
	}
	w.mu.Lock()
	w.demand = min(w.demand+1, maxPrepared)
	w.mu.Unlock()
	select {
	case w.making <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.mu.Lock()
	mute := w.mute
	w.mu.Unlock()
	if s := w.takePrepared(); s != nil || mute { // prepared, or given up, while this request waited
		<-w.making
		if s == nil {
			return nil, errMute
		}
		return s, nil
	}
	// The agent creates it even if the caller stops waiting. Another request can
	// then use it.
	type made struct {
		s   *session
		err error
	}
	done := make(chan made)
	go func() {
		defer func() { <-w.making }() // after the session has an owner
		s, err := w.create()
		select {
		case done <- made{s, err}:
		case <-ctx.Done():
			if err == nil {
				w.addPrepared(s)
			}
		}
	}()
	select {
	case m := <-done:
		return m.s, m.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// create asks the agent for a session. The caller has put the token into w.making.
func (w *process) create() (*session, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), w.timeout, errMute)
	defer cancel()
	w.mu.Lock()
	w.latest = "" // one that replaces it is on its way
	w.mu.Unlock()
	s, err := w.conn.NewSession(ctx, w.key.dir)
	w.mu.Lock()
	w.sessions++
	w.latest = s.ID
	w.mute = errors.Is(err, errMute)
	w.mu.Unlock()
	return &session{w: w, id: s.ID, model: s.Model, initial: s.Model}, err
}

// continues reports whether the process still holds the conversation, and can work on it.
// The caller holds Pool.mu.
func (s *session) continues() bool {
	if !s.w.agent.Warm.Single {
		return true
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.running == 0 && s.w.latest == s.id
}

// takePrepared returns a prepared session, or nil.
func (w *process) takePrepared() *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropOldLocked()
	n := len(w.prepared)
	if n == 0 {
		return nil
	}
	s := w.prepared[n-1]
	w.prepared = w.prepared[:n-1]
	return s
}

// dropOldLocked drops prepared sessions that were not used in time. Fewer are
// then prepared.
func (w *process) dropOldLocked() {
	n := len(w.prepared)
	w.prepared = slices.DeleteFunc(w.prepared, func(s *session) bool { return time.Since(s.prepared) > preparedTTL })
	w.demand = max(w.demand-(n-len(w.prepared)), 0)
}

func (w *process) addPrepared(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.prepared = time.Now()
	w.prepared = append(w.prepared, s)
}

// lacks reports whether another session should be prepared: at least one, and as
// many as recent requests had to wait for, but no more than limit in the life of
// the process.
func (w *process) lacks(limit int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropOldLocked()
	want := max(w.demand, 1)
	if w.agent.Warm.Single {
		want = 1
	}
	return !w.unprepared && len(w.prepared) < want && w.sessions < limit
}

// inBurst reports whether requests come faster than sessions are prepared: several
// recent ones had to wait for theirs, and none is left.
func (w *process) inBurst() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.demand > 1 && len(w.prepared) == 0
}

// prepare creates a session for a later request. It reports false if there are
// enough, or if none can be created. free is called last: a request that comes after it
// finds no prepared session, and waits for this one.
func (w *process) prepare(ctx context.Context, limit int, free func() bool) bool {
	select {
	case w.making <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-w.making }() // after the session was added
	if !w.lacks(limit) || !free() {
		return false
	}
	s, err := w.create()
	if err != nil {
		w.mu.Lock()
		w.unprepared = true // the next request finds out why
		w.mu.Unlock()
		return false
	}
	w.addPrepared(s)
	return true
}

func (w *process) readStderr() {
	buf := make([]byte, 32<<10)
	note := w.noter("")
	for {
		n, err := w.stderr.Read(buf)
		if n > 0 {
			note(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// noter returns a function that keeps the end of what an agent writes to standard error, or to
// the log with a name, and acts on the signs in it.
func (w *process) noter(log string) func([]byte) {
	if w.how.Monitor == nil {
		return func(b []byte) { w.note(agent.Signs{}, b) }
	}
	monitor := w.how.Monitor(w.source.Env, log)
	return func(b []byte) { w.note(monitor.Read(b), b) }
}

func (w *process) note(signs agent.Signs, b []byte) {
	w.mu.Lock()
	w.errText = append(w.errText, b...)
	keep := 0 // of the first part
	if w.once() {
		keep = maxStderr / 2
	}
	if over := len(w.errText) - maxStderr; over > 0 {
		w.errText = append(w.errText[:keep], w.errText[keep+over:]...)
	}
	w.unenforced = w.unenforced || signs.Unenforced
	unenforced := w.unenforced
	attempts := make([]*attempt, 0, len(w.attempts))
	for _, a := range w.attempts {
		attempts = append(attempts, a)
	}
	w.mu.Unlock()
	if w.once() { // so this is news of its only attempt, even if its search is not known yet
		for _, a := range attempts {
			a.change(func() { a.news, a.looping = time.Now(), a.looping || signs.SearchLoop })
		}
	}
	for _, r := range signs.Retries {
		if r.Session != "" {
			w.Update(agent.Update{Session: r.Session, Kind: agent.RetryAnnounced, Retry: &r})
			continue
		}
		announce(r, attempts)
	}
	if signs.SearchLoop {
		endSearch(attempts)
	}
	if unenforced {
		for _, a := range attempts {
			a.change(func() {}) // wake its goroutine
		}
	}
}

// Probe starts a process as a pool would, creates a session, and ends the
// process. It does not ask the model. It returns the time until the session was
// ready. If the agent reported the problem, the error is an [*agent.Error].
func Probe(ctx context.Context, row *agent.Agent, program agent.Program, dir string, wall agent.Wall) (took time.Duration, err error) {
	temp, err := agent.NewTempDir("bridge")
	if err != nil {
		return 0, err
	}
	defer temp.Close()
	w := newProcess(row, agent.Source{}, program, key{dir: dir}, wall, slog.New(slog.DiscardHandler))
	if err := w.start(ctx, temp, time.Minute); err != nil {
		if fault, ok := errors.AsType[*agent.Error](err); ok {
			return 0, fault
		}
		if kind := row.KindOf(err.Error()); kind != "" {
			return 0, row.Error(kind, row.Tidy(nil, err.Error()))
		}
		return 0, err
	}
	defer func() {
		w.stop()
		w.cleanUp()
	}()
	if _, err := w.session(ctx); err != nil {
		return 0, w.failure(ctx, err)
	}
	return time.Since(w.began), nil
}
