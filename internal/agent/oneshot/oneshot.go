// Package oneshot runs an agent once for each request.
package oneshot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/disk"
)

const (
	// maxOutput limits the total output of a run, which goes to the disk.
	maxOutput = 256 << 20
	// maxStderr limits how much of standard error is kept.
	maxStderr = 64 << 10
	// stopTimeout is how long a process may take to end after it was asked to.
	stopTimeout = 5 * time.Second
	// exitTimeout is how long a process may take to end after its result. The
	// answer then waits no longer.
	exitTimeout = 3 * time.Second
	// searchTimeout is how long a web search may take.
	searchTimeout = 60 * time.Second
	// readInterval is the time between two reads of the output. It is short
	// compared with the model's time, and long enough to cost nothing.
	readInterval = 10 * time.Millisecond
	// versionInterval is the time before a program that did not print its
	// version is asked again.
	versionInterval = 30 * time.Second
	// maxLookups limits the sources whose program is remembered.
	maxLookups = 16
)

// A Runner starts the agent for each request.
//
// The prompt goes to the process's standard input, never to its arguments, which
// every user of the machine can read. Its output goes to files, which the runner
// reads while they grow. A pipe would lose the end of a long answer, because
// agents exit before their output has been read. Also, processes that an agent
// leaves behind would keep a pipe open. The files are in the run's directory,
// together with the agent's temporary files, and are removed with it.
type Runner struct {
	agent  *agent.Agent
	idle   time.Duration // the longest time without output
	most   int64         // the output of a run in bytes, at most
	wall   agent.Wall
	log    *slog.Logger
	temp   *agent.TempDir
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	mu      sync.Mutex // held only for a few assignments
	closed  bool       // no new run may start
	runs    sync.WaitGroup
	lookups map[string]*lookup // the latest ones, by the key of the source
}

// A lookup is a search for the program that several requests share.
type lookup struct {
	file    string        // the state of the program's file
	used    time.Time     // guarded by Runner.mu
	asking  chan struct{} // closed when located is set, if the program is asked for its version
	located agent.Program
	done    chan struct{} // closed when the fields below are set
	program agent.Program
	err     error
	at      time.Time // when it ended
}

// New returns a runner. It creates the directory for the runs, and removes the
// directories of runners that were killed.
func New(row *agent.Agent, opts agent.Options) (*Runner, error) {
	if row.CheckTempDir != nil {
		if err := row.CheckTempDir(os.TempDir()); err != nil {
			return nil, err
		}
	}
	temp, err := agent.NewTempDir("bridge")
	if err != nil {
		return nil, err
	}
	r := &Runner{
		agent: row, temp: temp, lookups: make(map[string]*lookup), idle: cmp.Or(opts.IdleTimeout, 5*time.Minute),
		most: maxOutput, wall: opts.Wall, log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

// TempDir returns the directory of the runs, which exists until Close.
func (r *Runner) TempDir() *agent.TempDir { return r.temp }

// Close implements [agent.Runner].
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(agent.ErrClosed)
	r.runs.Wait()
	return r.temp.Close()
}

// Ahead implements [agent.Runner]. It does nothing.
func (r *Runner) Ahead(agent.Source, string) {}

// Forget implements [agent.Runner]. A one-shot conversation leaves nothing
// behind.
func (r *Runner) Forget(string) {}

// Workers implements [agent.Runner]. No process outlives its request.
func (r *Runner) Workers() []agent.Worker { return nil }

// Check implements [agent.Runner].
func (r *Runner) Check(ctx context.Context, from agent.Source) (agent.Program, error) {
	program, err := r.find(ctx, from)
	if err != nil {
		return program, err
	}
	if err := r.agent.ReadOnly(from, program); err != nil {
		return program, err
	}
	return program, r.wall.Check(r.agent)
}

// find returns the program of a source. It looks once for each state of the
// program's file. Asking a program for its version may take longer than the
// caller waits. The search then continues for the next caller.
func (r *Runner) find(ctx context.Context, from agent.Source) (agent.Program, error) {
	l := r.lookup(from)
	if l == nil {
		return r.agent.Find(ctx, from)
	}
	select {
	case <-l.done:
		return l.program, l.err
	case <-ctx.Done():
		return agent.Program{}, context.Cause(ctx)
	}
}

// Asking returns the program of a source, without a version, if it is being asked for
// its version. [Runner.Check] then takes as long as a start of the program.
func (r *Runner) Asking(ctx context.Context, from agent.Source) (program agent.Program, asking bool) {
	l := r.lookup(from)
	if l == nil {
		return agent.Program{}, false
	}
	select {
	case <-l.done:
		return agent.Program{}, false
	case <-ctx.Done():
		return agent.Program{}, false
	case <-l.asking:
	}
	select {
	case <-l.done:
		return agent.Program{}, false
	default:
		return l.located, true
	}
}

// lookup returns the current search for the program of a source. It starts one if
// necessary. After Close it returns nil, for requests that are still being answered.
func (r *Runner) lookup(from agent.Source) *lookup {
	key, file := r.agent.SourceKey(from), r.fileKey(from)
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lookups[key]
	due := l == nil || file == "" || l.file != file || l.stale()
	if due && r.closed {
		return nil
	}
	if due {
		l = &lookup{file: file, asking: make(chan struct{}), done: make(chan struct{})}
		r.addLookupLocked(key, l)
		r.runs.Go(func() { r.search(l, from) })
	}
	l.used = time.Now()
	return l
}

// search does the work of a lookup.
func (r *Runner) search(l *lookup, from agent.Source) {
	defer close(l.done)
	l.program, l.err = r.agent.Locate(from)
	if l.err == nil && l.program.Version == "" {
		l.located = l.program
		close(l.asking)
		l.program, l.err = r.agent.AskVersion(r.ctx, from, l.located)
	}
	l.at = time.Now()
}

// addLookupLocked keeps a lookup. It drops the one that was not used for the
// longest time if there are too many.
func (r *Runner) addLookupLocked(key string, l *lookup) {
	r.lookups[key] = l
	if len(r.lookups) <= maxLookups {
		return
	}
	oldest := ""
	for k, other := range r.lookups {
		if other != l && (oldest == "" || other.used.Before(r.lookups[oldest].used)) {
			oldest = k
		}
	}
	delete(r.lookups, oldest)
}

// stale reports whether a lookup has ended and must be repeated.
func (l *lookup) stale() bool {
	select {
	case <-l.done:
		return l.err != nil || l.program.Version == "" && time.Since(l.at) >= versionInterval
	default:
		return false
	}
}

// fileKey identifies the current state of the file of a source's program.
func (r *Runner) fileKey(from agent.Source) string {
	path, err := from.Env.LookPath(cmp.Or(from.Command, r.agent.Command))
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	resolved, _ := disk.EvalSymlinks(path)
	changed, id := disk.Stamp(info)
	return fmt.Sprint(resolved, info.Size(), info.ModTime().UnixNano(), changed, id)
}

// Attempt answers a request with a process of its own. See [agent.Runner].
func (r *Runner) Attempt(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		req.Released()
		return agent.Result{}, agent.ErrClosed
	}
	r.runs.Add(1)
	r.mu.Unlock()
	run := newRun(r, req, emit)
	defer func() {
		go func() {
			defer r.runs.Done()
			run.end()
			req.Released()
		}()
	}()
	if err := req.Pace(ctx); err != nil {
		return agent.Result{}, err
	}
	if err := run.start(ctx); err != nil {
		return agent.Result{}, err
	}
	result, err := run.follow(ctx)
	run.flush()
	result.Runner = agent.Spawned
	if run.unescape {
		result.Answer, result.Narration = r.agent.Unescape(result.Answer), r.agent.Unescape(result.Narration)
	}
	return result, err
}
