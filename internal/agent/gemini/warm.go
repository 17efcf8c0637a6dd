package gemini

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys"
)

// A WarmConfig bounds a [Warm] runner.
type WarmConfig struct {
	// Workers is how many processes there may be; 3 when zero. One that takes
	// over from another counts for itself only once the other has ended.
	Workers int
	// Idle is how long a process may have nothing to do; 10 minutes when zero.
	Idle time.Duration
	// Sessions, Memory (bytes) and Age are when a process is replaced, for the
	// CLI never lets go of a session; 30, 1 GiB and 2 hours when zero.
	Sessions int
	Memory   int64
	Age      time.Duration
	// Handshake is how long a process may take to be there; a minute when zero.
	// Wait is how much of that calls wait for, from its start; after that they
	// are answered otherwise; 5 seconds when zero.
	Handshake, Wait time.Duration
}

// A Warm is a [Runner] that keeps processes of the CLI which serve the Agent
// Client Protocol, so that a question does not wait for a start. Where there is
// none to be had, a [Spawner] runs the question.
//
// A process belongs to one workspace, by its real path, and to what the CLI
// reads when it starts: itself, its settings, the workspace's settings and .env
// files. When any of it changes, the next question starts another. So nothing
// of one workspace is in a process that works for another. Each question has a
// session of its own, unless it goes on with a conversation.
type Warm struct {
	spawner *Spawner
	cfg     WarmConfig

	mu       sync.Mutex
	closed   bool
	current  map[place]*worker
	starting map[place]*start
	all      map[*worker]bool    // those that run
	failed   map[string]failures // by what was to be started
	named    map[string]*warmSession
	work     sync.WaitGroup
	life     context.Context
	stop     context.CancelFunc
}

// A place is what there is one process for: a workspace, and whether its tools
// may write to what we serve.
type place struct {
	dir    string
	change bool
}

func (w *worker) place() place { return place{w.dir, w.change} }

// A start is a process on its way.
type start struct {
	began time.Time
	done  chan struct{}
	w     *worker
	err   error
}

// failures are those of one CLI and what it is started with.
type failures struct {
	n     int
	until time.Time // it is not tried again before
}

const (
	// After a failure a start is not tried for firstPause, which doubles with
	// each failure up to longestPause; a CLI that did not answer at all would
	// make the next call wait as long again, and is left alone for longer.
	firstPause, longestPause = 500 * time.Millisecond, time.Minute
	mutePause                = 10 * time.Minute
)

func (f *failures) add(err error) {
	f.n++
	pause := min(firstPause<<min(f.n-1, 10), longestPause)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errMute) {
		pause = mutePause
	}
	f.until = time.Now().Add(pause)
}

// NewWarm makes a runner of a spawner, which it closes with itself.
func NewWarm(s *Spawner, cfg WarmConfig) *Warm {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&cfg.Idle, 10*time.Minute)
	set(&cfg.Age, 2*time.Hour)
	set(&cfg.Handshake, time.Minute)
	set(&cfg.Wait, 5*time.Second)
	if cfg.Workers == 0 {
		cfg.Workers = 3
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 30
	}
	if cfg.Memory == 0 {
		cfg.Memory = 1 << 30
	}
	p := &Warm{
		spawner: s, cfg: cfg, current: make(map[place]*worker), starting: make(map[place]*start),
		all: make(map[*worker]bool), failed: make(map[string]failures), named: make(map[string]*warmSession),
	}
	p.life, p.stop = context.WithCancel(context.Background())
	return p
}

// Probe starts a CLI for dir as a warm process would be, has it make a session,
// and ends it: no question is asked, so that it costs no quota. It returns how
// long it took until the session was there. An error is an [*Error] where the
// CLI said what is wrong.
func Probe(ctx context.Context, cli agent.Program, dir string) (took time.Duration, err error) {
	root, lock, err := makeRoot()
	if err != nil {
		return 0, err
	}
	defer removeRoot(root, lock)
	began := time.Now()
	w, err := startWorker(ctx, cli, dir, false, root, time.Minute, func(string, ...any) {})
	if err != nil {
		if kind := kindOf(err.Error()); kind != "" {
			return 0, &agent.Error{Kind: kind, Message: tidy(err.Error())}
		}
		return 0, err
	}
	defer w.end()
	if _, err := w.session(ctx); err != nil {
		return 0, w.failure(ctx, err)
	}
	return time.Since(began), nil
}

// Check implements [Runner].
func (p *Warm) Check(ctx context.Context) (agent.Program, error) { return p.spawner.Check(ctx) }

// Close implements [Runner].
func (p *Warm) Close() error {
	p.mu.Lock()
	p.closed = true
	p.stop()
	for w := range p.all {
		p.retireLocked(w)
		go w.child.Stop(grace)
	}
	p.mu.Unlock()
	p.work.Wait()
	return p.spawner.Close()
}

// Forget implements [Runner].
func (p *Warm) Forget(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.named, session)
}

// Workers implements [Runner].
func (p *Warm) Workers() []agent.Worker {
	p.mu.Lock()
	var all []agent.Worker
	for w := range p.all {
		w.mu.Lock()
		all = append(all, agent.Worker{
			PID: w.child.PID(), Dir: w.dir, Running: len(w.turns), Sessions: w.sessions, Started: w.started, Used: w.used,
		})
		w.mu.Unlock()
	}
	p.mu.Unlock()
	for i := range all {
		all[i].Memory = sys.Memory(all[i].PID)
	}
	slices.SortFunc(all, func(a, b agent.Worker) int { return a.Started.Compare(b.Started) })
	return all
}

// Warm starts a process for a workspace ahead of the first question, if there
// is none, and returns at once.
func (p *Warm) Warm(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.work.Go(func() {
		cli, err := p.Check(p.life)
		if err != nil {
			return
		}
		if w, err := p.worker(p.life, cli, place{dir: dir}); err == nil {
			p.release(w)
		}
	})
}

// errCold says that there is no warm process to be had.
var errCold = errors.New("no warm process")

// Run implements [Runner].
func (p *Warm) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	released := req.Released
	if released == nil {
		released = func() {}
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		released()
		return agent.Result{}, agent.ErrClosed
	}
	p.work.Add(1)
	p.mu.Unlock()
	defer p.work.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.life, func() { cancel(agent.ErrClosed) })()

	heard := false
	hear := func(ev agent.Event) {
		if _, started := ev.(agent.Started); !started {
			heard = true
		}
		emit(ev)
	}
	for again := true; ; again = false {
		result, gone, err := p.ask(ctx, req, hear)
		var fault *agent.Error
		crashed := errors.As(err, &fault) && fault.Kind == agent.Crashed && ctx.Err() == nil
		if errors.Is(err, errMute) && gone != nil { // to a step before the question
			<-gone
			err = errCold
		}
		if errors.Is(err, errCold) {
			p.spawner.cfg.Log.Info("no warm process: starting Gemini CLI for this call", "why", err)
			return p.spawner.Run(ctx, req, emit)
		}
		if crashed && !heard && again {
			p.spawner.cfg.Log.Warn("a warm process ended in the middle of a call: once more", "error", err)
			continue
		}
		p.work.Go(func() {
			if gone != nil {
				<-gone
			}
			released()
		})
		if gone != nil {
			result.Runner, result.Changed = agent.Warmed, req.Change != nil
		}
		return result, err
	}
}

// ask has a worker answer. gone, if there is one, is closed when no process
// works on it any more.
func (p *Warm) ask(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, <-chan struct{}, error) {
	cli, err := p.Check(ctx)
	if err != nil {
		return agent.Result{}, nil, err
	}
	if len(req.Prompt) > MaxPrompt {
		return agent.Result{}, nil, &agent.Error{Kind: agent.TooLong, Message: fmt.Sprintf("%d bytes; Gemini CLI takes %d", len(req.Prompt), MaxPrompt)}
	}
	s, prompt, err := p.session(ctx, cli, req)
	if err != nil {
		return agent.Result{}, nil, err
	}
	result, ended, err := s.ask(ctx, req, prompt, p.spawner.cfg.Idle, emit)
	if errors.Is(err, errMute) {
		p.giveUp(s.w, err)
	}
	if err == nil && req.Session != "" {
		p.mu.Lock()
		if p.all[s.w] && !s.w.retired {
			p.named[req.Session] = s
		}
		p.mu.Unlock()
	}
	gone := make(chan struct{})
	p.work.Go(func() {
		defer close(gone)
		p.settle(s.w, ended, err)
	})
	return result, gone, err
}

// settle returns when the process works on a question no more: at once where
// it has answered, else as soon as it has stopped or was made to.
func (p *Warm) settle(w *worker, ended <-chan struct{}, err error) {
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
		case <-time.After(cancelWait):
			p.spawner.cfg.Log.Warn("a warm process does not stop: it is ended", "pid", w.child.PID())
		}
	}
	p.mu.Lock()
	p.retireLocked(w)
	p.mu.Unlock()
	w.child.Stop(0)
	if ended != nil {
		<-ended
	}
}

// session finds the conversation of a request, or begins one. The worker is
// held; release gives it back.
func (p *Warm) session(ctx context.Context, cli agent.Program, req agent.Request) (s *warmSession, prompt string, err error) {
	prompt = req.Prompt
	at := place{req.Dir, req.Change != nil}
	if at.change {
		switch {
		case !servesFiles(cli):
			return nil, "", fmt.Errorf("%w: this version writes to the disk", errCold)
		case nearHome(req.Dir):
			return nil, "", fmt.Errorf("%w: the CLI's own files are there, which it writes by itself", errCold)
		}
		prompt = req.Change.Prompt
	}
	id := identity(cli, req.Dir)
	if req.Session != "" {
		p.mu.Lock()
		s = p.named[req.Session]
		delete(p.named, req.Session) // until it has answered
		if s != nil && s.w.place() == at && s.w.alive() && !s.w.retired && s.w.identity == id {
			p.holdLocked(s.w)
			p.mu.Unlock()
			return s, prompt, nil
		}
		p.mu.Unlock()
	}
	switch {
	case at.change && req.Change.Replay != "":
		prompt = req.Change.Replay
	case !at.change && req.Replay != "":
		prompt = req.Replay
	}
	for range 2 { // it may end between the two steps
		w, err := p.worker(ctx, cli, at)
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
		if alive { // it refuses
			return nil, "", w.failure(ctx, err)
		}
	}
	return nil, "", fmt.Errorf("%w: it ends as soon as it has started", errCold)
}

// giveUp ends a worker that does not answer, and has no other started for a
// while.
func (p *Warm) giveUp(w *worker, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(w)
	p.failLocked(w.key, err)
	go w.child.Stop(grace)
}

func (p *Warm) failLocked(key string, err error) {
	f := p.failed[key]
	f.add(err)
	p.failed[key] = f
	p.spawner.cfg.Log.Warn("Gemini CLI cannot be kept warm", "error", err)
}

func (p *Warm) holdLocked(w *worker) {
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
}

// worker is the process of a workspace, started if need be, and held.
func (p *Warm) worker(ctx context.Context, cli agent.Program, at place) (*worker, error) {
	id := identity(cli, at.dir)
	p.mu.Lock()
	w := p.current[at]
	if w != nil && w.alive() && w.identity == id {
		p.holdLocked(w)
		p.mu.Unlock()
		return w, nil
	}
	if w != nil {
		p.retireLocked(w)
	}
	st := p.startLocked(cli, at, id)
	p.mu.Unlock()
	enough := time.NewTimer(p.cfg.Wait - time.Since(st.began))
	defer enough.Stop()
	select {
	case <-st.done:
	case <-enough.C:
		return nil, fmt.Errorf("%w: it takes long to start", errCold)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if st.err != nil {
		return nil, fmt.Errorf("%w: %w", errCold, st.err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.all[st.w] || st.w.retired {
		return nil, fmt.Errorf("%w: it has ended again", errCold)
	}
	p.holdLocked(st.w)
	return st.w, nil
}

// startLocked starts the process of a workspace, or returns the start that is
// under way.
func (p *Warm) startLocked(cli agent.Program, at place, id string) *start {
	if st := p.starting[at]; st != nil {
		return st
	}
	st := &start{began: time.Now(), done: make(chan struct{})}
	refuse := func(err error) *start {
		st.err = err
		close(st.done)
		return st
	}
	key := cli.Path + "\x00" + id
	if p.closed {
		return refuse(agent.ErrClosed)
	}
	if time.Now().Before(p.failed[key].until) {
		return refuse(errors.New("it could not be started a moment ago"))
	}
	if !p.roomLocked(at) {
		return refuse(fmt.Errorf("all %d are busy", p.cfg.Workers))
	}
	p.starting[at] = st
	p.work.Go(func() {
		defer close(st.done)
		w, err := startWorker(p.life, cli, at.dir, at.change, p.spawner.root, p.cfg.Handshake, p.spawner.cfg.Log.Warn)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.starting, at)
		if err == nil && p.closed {
			p.work.Go(w.end)
			err = agent.ErrClosed
		}
		if err != nil {
			st.err = err
			p.failLocked(key, err)
			return
		}
		delete(p.failed, key)
		w.identity, w.key = id, key
		if old := p.current[at]; old != nil {
			p.retireLocked(old)
		}
		st.w, p.current[at], p.all[w] = w, w, true
		p.work.Go(func() { p.watch(w) })
	})
	return st
}

// roomLocked makes room for one more process, of the one that was idle the
// longest if need be.
func (p *Warm) roomLocked(at place) bool {
	n := len(p.starting)
	for w := range p.all {
		if w != p.current[at] && !w.retired {
			n++
		}
	}
	if n < p.cfg.Workers {
		return true
	}
	var oldest *worker
	for w := range p.all {
		w.mu.Lock()
		idle := w.running == 0 && !w.retired
		w.mu.Unlock()
		if idle && (oldest == nil || w.used.Before(oldest.used)) {
			oldest = w
		}
	}
	if oldest == nil {
		return false
	}
	p.retireLocked(oldest)
	return true
}

// retireLocked takes a worker out: it ends as soon as nothing runs in it.
func (p *Warm) retireLocked(w *worker) {
	if p.current[w.place()] == w {
		delete(p.current, w.place())
	}
	for name, s := range p.named {
		if s.w == w {
			delete(p.named, name)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.retired {
		w.retired = true
		if w.running == 0 {
			go w.child.Stop(grace)
		}
	}
}

// watch ends a worker that has been idle for long, and forgets one that has
// ended.
func (p *Warm) watch(w *worker) {
	look := time.NewTicker(max(p.cfg.Idle/10, 10*time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-w.child.Done():
			p.mu.Lock()
			p.retireLocked(w)
			delete(p.all, w)
			p.mu.Unlock()
			w.end()
			return
		case <-look.C:
			p.mu.Lock()
			w.mu.Lock()
			idle := w.running == 0 && time.Since(w.used) > p.cfg.Idle
			w.mu.Unlock()
			if idle {
				p.retireLocked(w)
			}
			p.mu.Unlock()
		}
	}
}

// release gives a worker back: it prepares for the next question, or ends, or
// another is started to take over. It is called by what p.work counts.
func (p *Warm) release(w *worker) {
	p.mu.Lock()
	w.mu.Lock()
	w.running--
	w.used = time.Now()
	idle, retired := w.running == 0, w.retired
	due := w.sessions >= p.cfg.Sessions || time.Since(w.started) > p.cfg.Age
	w.mu.Unlock()
	closed := p.closed
	p.mu.Unlock()
	switch {
	case retired && idle:
		go w.child.Stop(grace)
	case retired || !w.alive() || closed:
	case due || sys.Memory(w.child.PID()) > p.cfg.Memory:
		p.work.Go(func() { p.replace(w) })
	case idle:
		p.work.Go(func() { w.prepare(p.life) })
	}
}

// replace starts a process that takes over from a worker.
func (p *Warm) replace(w *worker) {
	cli, err := p.Check(p.life)
	if err != nil {
		return
	}
	id := identity(cli, w.dir)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.mu.Lock()
	retired := w.retired
	w.mu.Unlock()
	if !retired { // else something else has seen to it
		p.startLocked(cli, w.place(), id)
	}
}

// identity says what a process is started with, as far as a file says it: when
// one changes, so does the identity.
func identity(cli agent.Program, dir string) string {
	var b strings.Builder
	look := func(path string) {
		if info, err := os.Stat(path); err == nil {
			changed, id := sys.Stamp(info)
			fmt.Fprintf(&b, "%s %d %d %d %d\n", path, info.Size(), info.ModTime().UnixNano(), changed, id)
		}
	}
	look(cli.Path)
	own := geminiHome()
	for _, name := range []string{"../.env", ".env", "settings.json", "trustedFolders.json", "google_accounts.json", "GEMINI.md"} {
		look(filepath.Join(own, filepath.FromSlash(name)))
	}
	for _, policies := range []string{filepath.Join(own, "policies"), systemPolicies()} {
		files, _ := filepath.Glob(filepath.Join(policies, "*.toml"))
		for _, f := range files {
			look(f)
		}
	}
	look(filepath.Join(filepath.Dir(systemPolicies()), "settings.json"))
	look(filepath.Join(dir, ".gemini", "settings.json"))
	for d := dir; ; d = filepath.Dir(d) {
		look(filepath.Join(d, ".env"))
		look(filepath.Join(d, ".gemini", ".env"))
		if d == filepath.Dir(d) {
			return b.String()
		}
	}
}
