// Package pool keeps warm processes of an agent, so that requests do not wait for a
// process to start.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

const (
	// After a failed start, the next one is delayed by retryDelay. It doubles
	// with each failure, up to maxRetryDelay. If the agent did not answer at
	// all, the delay is muteDelay, because the next request would wait just as
	// long.
	retryDelay, maxRetryDelay = 500 * time.Millisecond, time.Minute
	muteDelay                 = 10 * time.Minute
	// cancelTimeout is how long an agent may take to cancel its work; it usually
	// takes 50 ms.
	cancelTimeout = 3 * time.Second
	// prepareDelay is how long after a prompt a process starts to prepare the
	// next session. An agent that does one thing at a time first sends its
	// request to the model. In a burst of requests, the next one will wait for
	// its session anyway, so the delay is burstDelay.
	prepareDelay, burstDelay = 50 * time.Millisecond, time.Millisecond
)

var (
	// errCold reports that no warm process is available.
	errCold = errors.New("no warm process")
	// errMute reports a process that did not answer in time.
	errMute = errors.New("it does not answer")
)

// A Pool keeps the processes of an agent running. If none is available, a process for this
// request alone answers it: one as [agent.Driver.OneShot] describes it or, if the agent has none, one
// that could have stayed.
//
// A key identifies a process, and one process runs per key. The source and the
// workspace are part of the key, so a process never mixes the credentials of two
// clients, or two workspaces. A process is
// replaced when a file changes that the agent reads when it starts. Each request
// gets a new session, unless it continues a conversation.
//
// One goroutine, supervise, owns each process: it starts, drains, stops and
// reaps it. Other goroutines only ask it to.
//
// Lock order: Pool.mu, then process.mu, then attempt.mu. No lock is held during a
// stat, a read, a write, a call to the agent, or a log message.
type Pool struct {
	agent  *agent.Agent
	temp   *agent.TempDir
	limits agent.Limits
	idle   time.Duration // how long a request may go without news
	most   int64         // the output of a [agent.Driver.OneShot] process in bytes, at most
	wall   agent.Wall
	spawn  func(*exec.Cmd) (spawned, error)
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex // guards the fields below, and the fields of processes that say so
	closed   bool
	current  map[key]*process
	starting map[key]*process
	all      map[*process]bool   // the running ones
	failed   map[string]failures // by process.origin
	named    map[conversation]*session
	lookups  map[string]*lookup // the latest one of each source, by its key
}

// A key identifies a process. One process runs per key.
type key struct {
	source string // see [agent.Agent.SourceKey]
	dir    string
	change bool // its tools may write to files that Pollux serves
	slot   int  // counts the processes of an agent whose processes hold one conversation
}

// A conversation belongs to one source.
type conversation struct{ source, session string }

// failures counts the failures of one program with one set of inputs.
type failures struct {
	n     int
	until time.Time // the earliest time of the next start
}

func (f *failures) add(err error) {
	f.n++
	delay := min(retryDelay<<min(f.n-1, 10), maxRetryDelay)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errMute) {
		delay = muteDelay
	}
	f.until = time.Now().Add(delay)
}

// New returns a pool for an agent. It creates the directory for the processes' files, and removes
// the directories of pools that were killed.
func New(row *agent.Agent, opts agent.Options) (*Pool, error) {
	if row.CheckTempDir != nil {
		if err := row.CheckTempDir(os.TempDir()); err != nil {
			return nil, err
		}
	}
	temp, err := agent.NewTempDir("bridge")
	if err != nil {
		return nil, err
	}
	p := newPool(row, opts)
	p.temp = temp
	return p, nil
}

func newPool(row *agent.Agent, opts agent.Options) *Pool {
	limits := opts.Warm
	limits.Processes = cmp.Or(limits.Processes, 3)
	limits.IdleTimeout = cmp.Or(limits.IdleTimeout, 10*time.Minute)
	limits.Sessions = cmp.Or(limits.Sessions, 30)
	limits.Memory = cmp.Or(limits.Memory, 1<<30)
	limits.TTL = cmp.Or(limits.TTL, 2*time.Hour)
	limits.StartTimeout = cmp.Or(limits.StartTimeout, time.Minute)
	limits.WaitTimeout = cmp.Or(limits.WaitTimeout, 5*time.Second)
	p := &Pool{
		agent: row, limits: limits, idle: cmp.Or(opts.IdleTimeout, 5*time.Minute), most: maxOutput,
		wall: opts.Wall, spawn: spawn, log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		current: make(map[key]*process), starting: make(map[key]*process), all: make(map[*process]bool),
		failed: make(map[string]failures), named: make(map[conversation]*session), lookups: make(map[string]*lookup),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// Close implements [agent.Runner].
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel(agent.ErrClosed)
	p.tasks.Wait()
	return p.temp.Close()
}

// Forget implements [agent.Runner].
func (p *Pool) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.named, func(c conversation, _ *session) bool { return c.session == name })
}

// Workers implements [agent.Runner].
func (p *Pool) Workers() []agent.Worker {
	p.mu.Lock()
	var all []agent.Worker
	for w := range p.all {
		w.mu.Lock()
		all = append(all, agent.Worker{
			Agent: p.agent.DisplayName, PID: w.child.PID(), Dir: w.key.dir, Running: len(w.attempts), Sessions: w.sessions, Started: w.began, Used: w.used,
		})
		w.mu.Unlock()
	}
	p.mu.Unlock()
	for i := range all {
		all[i].Memory = proc.TreeMemory(all[i].PID)
	}
	slices.SortFunc(all, func(a, b agent.Worker) int { return a.Started.Compare(b.Started) })
	return all
}

// Ahead implements [agent.Runner].
func (p *Pool) Ahead(from agent.Source, dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.tasks.Go(func() { p.startAhead(from, dir) })
	}
}

// startAhead starts a process for a workspace if none is running.
func (p *Pool) startAhead(from agent.Source, dir string) {
	k := key{source: p.agent.SourceKey(from), dir: dir}
	program, err := p.check(p.ctx, from, k)
	if err != nil {
		return
	}
	inputs := p.inputs(from, program, dir)
	if w, err := p.process(p.ctx, from, program, k, inputs, true); err == nil {
		p.prepare(w)
	}
}

// check is [Pool.Check] for a process. If the program is asked for its version, which
// takes as long as a start, the process starts meanwhile.
func (p *Pool) check(ctx context.Context, from agent.Source, k key) (agent.Program, error) {
	// Change mode depends on the version.
	if program, asking := p.asking(ctx, from); asking && !k.change {
		p.startUnchecked(from, program, k)
	}
	return p.Check(ctx, from)
}

// startUnchecked starts a process whose program is asked for its version. If the program
// is refused, the process is killed. Until then it has received no more than the
// handshake, because each request checks the program first. The caller must be one of
// p.tasks.
func (p *Pool) startUnchecked(from agent.Source, program agent.Program, k key) {
	inputs := p.inputs(from, program, k.dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current[k] != nil || p.starting[k] != nil {
		return
	}
	w, err := p.startLocked(from, program, k, inputs, false)
	if err != nil {
		return // or the request finds out why
	}
	p.tasks.Go(func() {
		if _, err := p.Check(p.ctx, from); err != nil {
			p.kill(w)
		}
	})
}

// Attempt answers a request with a process that stays or, if none can be used, with another
// one. See [agent.Runner].
func (p *Pool) Attempt(ctx context.Context, req agent.Request, emit func(agent.Event)) (result agent.Result, err error) {
	if p.agent.Warm.CanChange == nil {
		req.Change = nil
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		req.Release(nil, nil)
		return agent.Result{}, agent.ErrClosed
	}
	p.tasks.Add(1)
	p.mu.Unlock()
	defer p.tasks.Done()
	var over <-chan struct{} // closed when no process works on the request any more; nil if none does
	defer func() { req.Release(&p.tasks, over) }()
	if req.Spawn {
		result, over, err = p.runAlone(ctx, req, emit)
		return result, err
	}
	emitted := false // anything except the start
	watch := func(ev agent.Event) {
		if _, started := ev.(agent.Started); !started {
			emitted = true
		}
		emit(ev)
	}
	for first := true; ; first = false {
		result, over, err = p.warmly(ctx, req, watch)
		if errors.Is(err, errMute) && over != nil { // in a step before the prompt
			<-over
			err = errCold
		}
		if err != nil && ctx.Err() == nil && p.ctx.Err() != nil { // its processes end
			err = agent.ErrClosed
		}
		if errors.Is(err, errCold) {
			p.log.Info("no warm process: starting the agent for this request", "agent", p.agent.DisplayName,
				"why", p.agent.Tidy(req.Source.Env, err.Error()))
			result, over, err = p.runAlone(ctx, req, emit)
			return result, err
		}
		var fault *agent.Error
		crashed := errors.As(err, &fault) && fault.Kind == agent.Crashed && ctx.Err() == nil
		if crashed && !emitted && first {
			p.log.Warn("a warm process ended during a request: trying again", "agent", p.agent.DisplayName)
			p.log.Debug("why the process ended", "error", err) // it may quote the prompt
			continue
		}
		if over != nil {
			result.Runner, result.Changed = agent.Warmed, req.Change != nil
		}
		return result, err
	}
}

// warmly asks a process that stays. If over is not nil, it is closed when no process
// works on the request any more.
func (p *Pool) warmly(ctx context.Context, req agent.Request, emit func(agent.Event)) (result agent.Result, over <-chan struct{}, err error) {
	k := key{source: p.agent.SourceKey(req.Source), dir: req.Dir, change: req.Change != nil}
	program, err := p.check(ctx, req.Source, k)
	if err == nil {
		err = fits(p.agent, req.Prompt)
	}
	if err != nil {
		return agent.Result{}, nil, err
	}
	s, prompt, err := p.reserve(ctx, program, k, req)
	if err != nil {
		if _, fromProcess := errors.AsType[*agent.Error](err); fromProcess {
			result.Runner = agent.Warmed
		}
		return result, nil, err
	}
	answering, answered := context.WithCancel(ctx)
	p.tasks.Go(func() { p.prepareDuring(answering, s.w) })
	result, ended, err := s.exchange(ctx, req, prompt, p.idle, emit)
	answered()
	if errors.Is(err, errMute) {
		p.giveUp(s.w, err)
	}
	if err == nil && req.Conversation != "" {
		p.mu.Lock()
		if p.all[s.w] && !s.w.retired && (s.initial != "" || s.model == "") { // otherwise it cannot go back to its model
			p.named[conversation{s.w.key.source, req.Conversation}] = s
		}
		p.mu.Unlock()
	}
	done := make(chan struct{})
	p.tasks.Go(func() {
		defer close(done)
		p.settle(s.w, ended, err)
	})
	return result, done, err
}

// fits returns an error for a prompt that is too long.
func fits(row *agent.Agent, prompt string) error {
	if len(prompt) <= row.MaxPrompt {
		return nil
	}
	return row.Error(agent.TooLong, fmt.Sprintf("%d bytes; %s accepts %d", len(prompt), row.DisplayName, row.MaxPrompt))
}

// settle waits until a process no longer works on a request, and releases the
// process. If the request has no answer yet, the process must first cancel the
// work, or it is killed.
func (p *Pool) settle(w *process, ended <-chan struct{}, err error) {
	defer p.release(w)
	var fault *agent.Error
	bad := errors.As(err, &fault) && (fault.Kind == agent.Strayed || fault.Kind == agent.Unenforceable)
	if ended == nil && !bad {
		return
	}
	if !bad {
		select {
		case <-ended:
			return
		case <-time.After(cancelTimeout):
			p.log.Warn("a warm process does not cancel a request and is killed", "pid", w.child.PID())
		}
	}
	p.kill(w)
	<-w.done
	if ended != nil {
		<-ended
	}
}

// reserve returns the session that holds the request's conversation, or a new one, and
// the prompt for it. The process is held until release.
func (p *Pool) reserve(ctx context.Context, program agent.Program, k key, req agent.Request) (s *session, prompt string, err error) {
	prompt = req.Prompt
	if k.change {
		if err := p.agent.Warm.CanChange(req.Source, program, req.Dir); err != nil {
			return nil, "", fmt.Errorf("%w: %w", errCold, err)
		}
		prompt = req.Change.Prompt
	}
	inputs := p.inputs(req.Source, program, req.Dir)
	if req.Conversation != "" {
		name := conversation{k.source, req.Conversation}
		p.mu.Lock()
		s = p.named[name]
		delete(p.named, name) // it is added again after the answer
		if s != nil {
			k.slot = s.w.key.slot
		}
		if s != nil && s.w.key == k && s.w.alive() && !s.w.retired && s.w.inputs == inputs && s.continues() {
			s.w.running++
			p.mu.Unlock()
			return s, prompt, nil
		}
		p.mu.Unlock()
		k.slot = 0
	}
	switch {
	case k.change && req.Change.Replay != "":
		prompt = req.Change.Replay
	case !k.change && req.Replay != "":
		prompt = req.Replay
	}
	for range 2 { // the process may end between the two steps
		w, err := p.process(ctx, req.Source, program, k, inputs, false)
		if err != nil {
			return nil, "", err
		}
		if s, err = w.session(ctx); err == nil {
			return s, prompt, nil
		}
		alive := w.alive()
		if errors.Is(err, errMute) {
			p.giveUp(w, err)
			p.release(w)
			return nil, "", fmt.Errorf("%w: %w", errCold, err)
		}
		p.release(w)
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		if alive { // the agent refuses
			return nil, "", w.failure(ctx, err)
		}
	}
	return nil, "", fmt.Errorf("%w: it ends right after its start", errCold)
}

// kill ends a process immediately.
func (p *Pool) kill(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(w)
	w.askKill()
}

// giveUp ends a process that does not answer, and delays the next start.
func (p *Pool) giveUp(w *process, err error) {
	p.mu.Lock()
	p.retireLocked(w)
	w.askStop()
	p.failLocked(w.origin, err)
	p.mu.Unlock()
	p.logFailure(w, err)
}

func (p *Pool) failLocked(origin string, err error) {
	// Sources and files change, so old origins may never start again.
	maps.DeleteFunc(p.failed, func(_ string, f failures) bool { return time.Since(f.until) > muteDelay })
	f := p.failed[origin]
	f.add(err)
	p.failed[origin] = f
}

func (p *Pool) logFailure(w *process, err error) {
	message := p.agent.Tidy(w.source.Env, err.Error())
	p.log.Warn("the agent cannot be kept warm", "agent", p.agent.DisplayName, "error", message)
}

// process returns the process of a key that has read these inputs. It starts one if necessary. The
// process is held until release. ahead says that no request needs it yet: then process does not
// hold it, ends no other one to make room, and waits until it has started.
func (p *Pool) process(ctx context.Context, from agent.Source, program agent.Program, k key, inputs string, ahead bool) (*process, error) {
	p.mu.Lock()
	if p.agent.Warm.Single && !ahead {
		k.slot = p.slotLocked(k)
	}
	w := p.current[k]
	if w != nil && w.alive() && w.inputs == inputs {
		if !ahead {
			w.running++
		}
		p.mu.Unlock()
		return w, nil
	}
	if w != nil {
		p.retireLocked(w)
	}
	w, err := p.startLocked(from, program, k, inputs, !ahead)
	if err == nil && w.inputs != inputs {
		err = errors.New("one is starting with other settings")
	}
	var enough <-chan time.Time
	if err == nil && !ahead {
		if w.awaited.IsZero() {
			w.awaited = time.Now()
		}
		if p.agent.OneShot != nil { // otherwise another start would only slow down both
			enough = time.After(p.limits.WaitTimeout - time.Since(w.awaited))
		}
	}
	p.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCold, err)
	}
	select {
	case <-w.ready:
	case <-enough:
		return nil, fmt.Errorf("%w: it takes long to start", errCold)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if fault, ok := errors.AsType[*agent.Error](w.err); ok {
		return nil, fault
	}
	if w.err != nil {
		return nil, fmt.Errorf("%w: %w", errCold, w.err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.retired:
		return nil, fmt.Errorf("%w: it has ended already", errCold)
	case ahead:
		return w, nil
	case p.agent.Warm.Single && w.running > 0:
		return nil, fmt.Errorf("%w: another request was faster", errCold)
	}
	w.running++
	return w, nil
}

func (p *Pool) newProcess(from agent.Source, program agent.Program, k key) *process {
	w := newProcess(p.agent, from, program, k, p.wall, p.log)
	w.spawn = p.spawn
	return w
}

// slotLocked returns a slot of a key whose process is free. Without one, it returns the first
// slot without a process that a request uses or waits for. If all are busy, it returns one
// that starts no process: its number is too large.
func (p *Pool) slotLocked(k key) int {
	unused := p.limits.Processes
	for k.slot = range p.limits.Processes {
		current, starting := p.current[k], p.starting[k]
		switch {
		case current != nil && current.running == 0:
			return k.slot
		case current == nil && (starting == nil || starting.awaited.IsZero()):
			unused = min(unused, k.slot)
		}
	}
	return unused
}

// startLocked starts the process of a key, or returns the one that is already
// starting. With makeRoom, it may end an idle process for it.
func (p *Pool) startLocked(from agent.Source, program agent.Program, k key, inputs string, makeRoom bool) (*process, error) {
	if w := p.starting[k]; w != nil {
		return w, nil
	}
	w := p.newProcess(from, program, k)
	w.inputs, w.origin = inputs, program.Path+"\x00"+k.source+"\x00"+inputs
	switch {
	case p.closed:
		return nil, agent.ErrClosed
	case time.Now().Before(p.failed[w.origin].until):
		return nil, errors.New("it could not be started a moment ago")
	case !p.roomLocked(k, makeRoom):
		return nil, fmt.Errorf("all %d are busy", p.limits.Processes)
	}
	p.starting[k] = w
	p.tasks.Go(func() { p.supervise(w) })
	return w, nil
}

// roomLocked reports whether one more process may run. If necessary, and with
// makeRoom, it retires the process that has been idle the longest.
func (p *Pool) roomLocked(k key, makeRoom bool) bool {
	n := len(p.starting)
	var oldest *process
	for w := range p.all {
		if w.retired {
			continue
		}
		if w != p.current[k] { // otherwise the new one replaces it
			n++
		}
		if w.running == 0 && (oldest == nil || w.used.Before(oldest.used)) {
			oldest = w
		}
	}
	if n < p.limits.Processes {
		return true
	}
	if oldest == nil || !makeRoom {
		return false
	}
	p.retireLocked(oldest)
	return true
}

// retireLocked takes a process out of use. The process ends when its last
// request has.
func (p *Pool) retireLocked(w *process) {
	if p.current[w.key] == w {
		delete(p.current, w.key)
	}
	for name, s := range p.named {
		if s.w == w {
			delete(p.named, name)
		}
	}
	w.retired = true
	if w.running == 0 {
		w.askStop()
	}
}

// supervise owns a process from its start to its end.
func (p *Pool) supervise(w *process) {
	defer close(w.done)
	err := w.start(p.ctx, p.temp, p.limits.StartTimeout)
	p.mu.Lock()
	delete(p.starting, w.key)
	refused := w.retired // see startUnchecked
	switch {
	case err == nil:
		p.all[w] = true
		if !refused {
			p.useLocked(w)
		}
	case !refused:
		p.failLocked(w.origin, err)
	}
	p.mu.Unlock()
	w.err = err
	close(w.ready)
	if err != nil {
		if _, reported := errors.AsType[*agent.Error](err); p.ctx.Err() == nil && !refused && !reported {
			p.logFailure(w, err)
		}
		return
	}
	p.drain(w)
	w.stop()
	p.mu.Lock()
	delete(p.all, w)
	p.mu.Unlock()
	w.cleanUp()
}

// useLocked makes a process that has started the current one for its key.
func (p *Pool) useLocked(w *process) {
	delete(p.failed, w.origin)
	if old := p.current[w.key]; old != nil {
		p.retireLocked(old)
	}
	p.current[w.key] = w
}

// drain waits until a process has ended or must end, and takes it out of use.
func (p *Pool) drain(w *process) {
	look := time.NewTicker(max(p.limits.IdleTimeout/10, 10*time.Millisecond))
	defer look.Stop()
	for running := true; running; {
		select {
		case <-w.child.Done():
			running = false
		case <-w.conn.Done():
			running = false
		case <-w.stopping.Done():
			running = false
		case <-p.ctx.Done():
			running = false
		case <-look.C:
			p.mu.Lock()
			if w.running == 0 && time.Since(w.used) > p.limits.IdleTimeout {
				p.retireLocked(w)
			}
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(w)
}

// release gives a process back. The process then prepares for the next request,
// ends, or is replaced. The caller must be one of p.tasks.
func (p *Pool) release(w *process) {
	w.mu.Lock()
	sessions := w.sessions
	w.mu.Unlock()
	p.mu.Lock()
	w.running--
	w.used = time.Now()
	retired, closed := w.retired, p.closed
	if w.running == 0 && retired {
		w.askStop()
	}
	p.mu.Unlock()
	switch {
	case retired || closed || !w.alive():
	case sessions >= p.limits.Sessions || time.Since(w.began) > p.limits.TTL || proc.TreeMemory(w.child.PID()) > p.limits.Memory:
		p.tasks.Go(func() { p.replace(w) })
	default:
		p.tasks.Go(func() { p.prepare(w) })
	}
}

// prepare prepares a session for the next request. While a process is idle, it
// prepares as many as the last burst of requests needed. One goroutine prepares the
// sessions of a process: a request that has to create one waits for it at most once.
func (p *Pool) prepare(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.due = true
	if w.preparing {
		return
	}
	w.preparing = true
	for w.due && !w.retired && !p.closed {
		w.due = false
		p.mu.Unlock()
		more := w.prepare(p.ctx, p.limits.Sessions, func() bool { return p.free(w) })
		p.mu.Lock()
		w.due = w.due || more && w.running == 0
	}
	w.preparing = false
}

// free reports whether another session of a process ends no conversation that a request
// uses, or that may continue.
func (p *Pool) free(w *process) bool {
	if !w.agent.Warm.Single {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range p.named {
		if s.w == w && s.id == w.latest {
			return false
		}
	}
	return w.running == 0
}

// prepareDuring prepares a session while the model answers, until ctx ends.
func (p *Pool) prepareDuring(ctx context.Context, w *process) {
	delay := prepareDelay
	if w.inBurst() {
		delay = burstDelay
	}
	select {
	case <-time.After(delay):
		p.prepare(w)
	case <-ctx.Done(): // release prepares it
	}
}

// replace starts a process that replaces w.
func (p *Pool) replace(w *process) {
	program, err := p.Check(p.ctx, w.source)
	if err != nil {
		return
	}
	inputs := p.inputs(w.source, program, w.key.dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.retired { // otherwise it has been replaced already
		p.startLocked(w.source, program, w.key, inputs, true)
	}
}

// inputs describes the state of each file that the agent reads at its start.
func (p *Pool) inputs(from agent.Source, program agent.Program, dir string) string {
	var b strings.Builder
	for _, path := range p.agent.Warm.Inputs(from, program, dir) {
		if state := disk.StateOf(path); state != "" {
			b.WriteString(path + " " + state + "\n")
		}
	}
	return b.String()
}
