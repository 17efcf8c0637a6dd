package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/agent"
	"pollux/internal/outbox"
	"pollux/internal/sys/sock"
)

const (
	// connectTimeout limits the start of a pool, or the connection to one.
	connectTimeout = 15 * time.Second
	// maxAttempts is how often a request is sent, if pools end before they answer.
	maxAttempts = 3
	// pauseAfterFailure is the time without a pool after it could not be reached.
	pauseAfterFailure = 30 * time.Second
	// partialTimeout is how long a cancelled request waits for the text that has arrived
	// at the pool.
	partialTimeout = 500 * time.Millisecond
	// stateTimeout limits a question about the state of the pool.
	stateTimeout = 2 * time.Second
	// While requests run, the pool is asked for a sign of life after each pingInterval.
	// One that gives none within pingTimeout, such as a stopped process, counts as
	// ended. A call of half a minute has time for another one.
	pingInterval = 3 * time.Second
	pingTimeout  = 5 * time.Second
)

// errLost reports that a connection ended before the answer, or that the pool ends.
var errLost = errors.New("the pool has ended")

// errNoWall reports a pool without the required wall.
var errNoWall = &agent.Error{Kind: agent.Unenforceable, Remedy: agent.Remedy{
	What: "the kernel does not keep the pool's agents from changing files, which bridge.wall requires",
	Next: "see `pollux pool status` where the pool runs, and set bridge.wall there",
}}

// A Config configures a [Client].
type Config struct {
	// Connect connects to a pool, and starts one if necessary.
	Connect func(context.Context) (io.ReadWriteCloser, error)
	// Hello is sent first. It is nil if the other side of the connection greets the pool.
	Hello *Hello
	// Explain, if set, returns the error for users of a connection on which no pool has
	// answered.
	Explain func(ctx context.Context, conn io.ReadWriteCloser, err error) error
	// Local opens the runner that answers if no pool can be reached. If it is nil, such
	// requests fail with the error of Connect.
	Local func() (agent.Runner, error)
	// Check returns the program of a source while there is no connection, so that a
	// check starts no pool. If it is nil, the pool is asked.
	Check func(context.Context, agent.Source) (agent.Program, error)
	// Usable reports whether the program of a source can be used, as far as that is known
	// without running it. If not, Ahead starts no pool. If it is nil, the pool decides.
	Usable func(agent.Source) bool
	// RequireWall refuses a pool whose agents do not run behind a wall: see [agent.Wall].
	RequireWall bool
	// There and Here translate paths to those of the pool's machine and back. They are
	// nil if both are the same.
	There, Here func(path string) (string, bool)
	// Log may be nil.
	Log *slog.Logger
}

// A Client is an [agent.Runner] that asks the pool. All requests share one connection,
// which is opened with the first request and again when the pool has ended. A request
// whose connection ends before the answer is sent again.
//
// Lock order: Client.mu, then clientConn.mu.
type Client struct {
	cfg  Config
	log  *slog.Logger
	ctx  context.Context // ends with Close
	end  context.CancelCauseFunc
	turn chan struct{} // holds a token while nobody connects or opens the local runner
	work sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	closed bool
	conn   *clientConn          // the latest one
	conns  map[*clientConn]bool // all that have not ended
	local  agent.Runner
	paused time.Time // no attempt to reach a pool until then
}

// NewClient returns a runner that asks a pool. It does not connect yet.
func NewClient(cfg Config) *Client {
	c := &Client{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), turn: make(chan struct{}, 1),
		conns: make(map[*clientConn]bool),
	}
	c.turn <- struct{}{}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	return c
}

// Close implements [agent.Runner]. The pool's processes keep running for others.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(agent.ErrClosed)
	c.work.Wait()
	c.mu.Lock()
	conns, local := slices.Collect(maps.Keys(c.conns)), c.local
	c.mu.Unlock()
	for _, conn := range conns {
		conn.close()
	}
	if local != nil {
		return local.Close()
	}
	return nil
}

// enter counts a request. It reports false if the client is closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Add(1)
	return true
}

// Run implements [agent.Runner].
func (c *Client) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	released := sync.OnceFunc(func() {
		if req.Released != nil {
			req.Released()
		}
	})
	if !c.enter() {
		released()
		return agent.Result{}, agent.ErrClosed
	}
	defer c.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(agent.ErrClosed) })()
	params, err := c.params(req)
	if err != nil {
		released()
		return agent.Result{}, err
	}
	for range maxAttempts {
		conn, err := c.connect(ctx)
		if err == nil {
			var result agent.Result
			result, err = conn.run(ctx, params, req, emit, released)
			if !errors.Is(err, errLost) {
				return result, err
			}
			c.log.Info("the pool ended during a request: trying again", "error", err)
			continue
		}
		if ctx.Err() != nil {
			released()
			return agent.Result{}, context.Cause(ctx)
		}
		return c.runLocally(ctx, req, emit, released, err)
	}
	err = fmt.Errorf("%w %d times before the answer: try again", errLost, maxAttempts)
	return c.runLocally(ctx, req, emit, released, err)
}

// runLocally answers a request without the pool.
func (c *Client) runLocally(ctx context.Context, req agent.Request, emit func(agent.Event), released func(), why error) (agent.Result, error) {
	local, err := c.openLocal(ctx, why)
	if err != nil {
		released()
		return agent.Result{}, err
	}
	req.Released = released
	return local.Run(ctx, req, emit)
}

// openLocal returns the local runner. why is the reason that the pool is not used.
func (c *Client) openLocal(ctx context.Context, why error) (agent.Runner, error) {
	if c.cfg.Local == nil {
		return nil, why
	}
	if local := c.localRunner(); local != nil {
		return local, nil
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	if local := c.localRunner(); local != nil {
		return local, nil
	}
	c.log.Warn("the pool cannot be used: this bridge runs its own processes", "error", why)
	local, err := c.cfg.Local()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = local
	return local, nil
}

// localRunner returns the local runner, or nil if it is not open.
func (c *Client) localRunner() agent.Runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

// params returns the message of a request.
func (c *Client) params(req agent.Request) (runParams, error) {
	p := runParams{
		Prompt: req.Prompt, Images: req.Images, Model: req.Model, Dir: req.Dir, Verbatim: req.Verbatim, Spawn: req.Spawn,
		Session: req.Session, Replay: req.Replay, Turn: req.Turn,
	}
	if req.Change != nil {
		p.Change = &changeParams{req.Change.Prompt, req.Change.Replay}
	}
	dir, ok := c.there(req.Dir)
	if !ok {
		return p, fmt.Errorf("%s is in no --map: add --map %s=THERE, with its name where the pool runs", req.Dir, req.Dir)
	}
	p.Dir = dir
	return p, nil
}

func (c *Client) there(path string) (string, bool) {
	if c.cfg.There == nil {
		return path, true
	}
	return c.cfg.There(path)
}

func (c *Client) here(path string) (string, bool) {
	if c.cfg.Here == nil {
		return path, true
	}
	return c.cfg.Here(path)
}

// connected returns the connection, or nil.
func (c *Client) connected() *clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.alive() {
		return c.conn
	}
	return nil
}

// connect returns the connection, and opens it if necessary.
func (c *Client) connect(ctx context.Context) (*clientConn, error) {
	if conn := c.connected(); conn != nil {
		return conn, nil
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	if conn := c.connected(); conn != nil {
		return conn, nil
	}
	c.mu.Lock()
	paused := time.Now().Before(c.paused)
	c.mu.Unlock()
	if paused && c.cfg.Local != nil {
		return nil, errors.New("it could not be reached a moment ago")
	}
	opening, cancel := context.WithTimeoutCause(ctx, connectTimeout, errors.New("the pool does not answer"))
	defer cancel()
	conn, err := c.open(opening)
	for range maxAttempts - 1 {
		if !Ended(err) || opening.Err() != nil {
			break
		}
		conn, err = c.open(opening)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.conn, c.conns[conn] = conn, true
		conn.work.Go(conn.watch)
		return conn, nil
	case ctx.Err() == nil: // otherwise only this caller has given up
		c.paused = time.Now().Add(pauseAfterFailure)
	}
	return nil, err
}

// Ended reports whether an error of a connection says that no pool is there, or that it
// ended while a client connected to it.
func Ended(err error) bool {
	signs := []error{io.EOF, io.ErrUnexpectedEOF, fs.ErrNotExist, syscall.ECONNRESET, syscall.EPIPE}
	return sock.Refused(err) || slices.ContainsFunc(signs, func(sign error) bool { return errors.Is(err, sign) })
}

func (c *Client) open(ctx context.Context) (*clientConn, error) {
	rwc, err := c.cfg.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l, w, err := greet(ctx, rwc, c.cfg.Hello)
	if err != nil {
		return nil, c.explain(ctx, rwc, err)
	}
	if c.cfg.RequireWall && !w.Walled {
		l.Close()
		return nil, errNoWall
	}
	conn := &clientConn{client: c, pool: w.PID, runs: make(map[int]*clientRun)}
	ready := make(chan struct{})
	conn.rpc = newConn(context.Background(), l, func(ctx context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) {
		<-ready
		conn.handle(ctx, req)
	})
	close(ready)
	return conn, nil
}

// explain returns the error for users of a connection that failed.
func (c *Client) explain(ctx context.Context, conn io.ReadWriteCloser, err error) error {
	var refused refusal
	if c.cfg.Explain == nil || errors.As(err, &refused) {
		return err
	}
	return c.cfg.Explain(ctx, conn, err)
}

// greet exchanges the first messages. After an error, it has closed the connection.
func greet(ctx context.Context, rwc io.ReadWriteCloser, hello *Hello) (*link, Welcome, error) {
	stop := context.AfterFunc(ctx, func() { rwc.Close() })
	l := newLink(rwc)
	var w Welcome
	var err error
	if hello != nil {
		err = l.WriteObject(hello)
	}
	if err == nil {
		err = l.ReadObject(&w)
	}
	if err == nil {
		err = w.check()
	}
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		rwc.Close()
		return nil, w, err
	}
	return l, w, nil
}

// Check implements [agent.Runner].
func (c *Client) Check(ctx context.Context, from agent.Source) (agent.Program, error) {
	if !c.enter() {
		return agent.Program{}, agent.ErrClosed
	}
	defer c.work.Done()
	if c.cfg.Check != nil && c.connected() == nil {
		return c.cfg.Check(ctx, from)
	}
	var err error
	for range maxAttempts {
		var conn *clientConn
		if conn, err = c.connect(ctx); err != nil {
			break
		}
		var r checkResult
		if err = conn.check(ctx, &r); err == nil {
			return r.Program, r.err()
		}
	}
	if ctx.Err() != nil {
		return agent.Program{}, context.Cause(ctx)
	}
	local, err := c.openLocal(ctx, err)
	if err != nil {
		return agent.Program{}, err
	}
	return local.Check(ctx, from)
}

func (r checkResult) err() error {
	switch {
	case r.Fault != nil:
		return r.Fault
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// Ahead implements [agent.Runner].
func (c *Client) Ahead(from agent.Source, dir string) {
	dir, ok := c.there(dir)
	if !ok || !c.enter() {
		return
	}
	go func() {
		defer c.work.Done()
		if c.cfg.Usable != nil && !c.cfg.Usable(from) {
			return
		}
		if conn, err := c.connect(c.ctx); err == nil {
			conn.rpc.Notify(c.ctx, methodAhead, aheadParams{dir})
		}
	}()
}

// Forget implements [agent.Runner].
func (c *Client) Forget(session string) {
	if conn := c.connected(); conn != nil {
		conn.rpc.Notify(c.ctx, methodForget, sessionParams{session})
	}
	if local := c.localRunner(); local != nil {
		local.Forget(session)
	}
}

// Keep stores a conversation of n exchanges, so that another bridge can continue it.
func (c *Client) Keep(session string, n int, data []byte) {
	if conn := c.connected(); conn != nil {
		conn.rpc.Notify(c.ctx, methodKeep, conversation{session, n, data})
	}
}

// Kept returns a conversation that has more than n exchanges at the pool, or nil. It fails
// if the pool cannot be asked.
func (c *Client) Kept(ctx context.Context, session string, n int) ([]byte, error) {
	var known conversation
	conn, err := c.connect(ctx)
	if err == nil {
		asking, cancel := context.WithTimeoutCause(ctx, stateTimeout, errors.New("it does not answer"))
		defer cancel()
		err = conn.rpc.Call(asking, methodKept, conversation{Session: session, N: n}, &known)
		if err != nil {
			err = cmp.Or(context.Cause(asking), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask the pool: %w", err)
	}
	return known.Data, nil
}

// Workers implements [agent.Runner]: it returns the processes of the pool.
func (c *Client) Workers() []agent.Worker {
	var all []agent.Worker
	if conn := c.connected(); conn != nil {
		ctx, cancel := context.WithTimeout(c.ctx, stateTimeout)
		defer cancel()
		conn.rpc.Call(ctx, methodWorkers, nil, &all)
	}
	return append(all, c.OwnWorkers()...)
}

// OwnWorkers returns the processes of the runner that answers if no pool can be reached.
func (c *Client) OwnWorkers() []agent.Worker {
	if local := c.localRunner(); local != nil {
		return local.Workers()
	}
	return []agent.Worker{}
}

// Pool returns the process of the pool that the client is connected to, or 0.
func (c *Client) Pool() int {
	if conn := c.connected(); conn != nil {
		return conn.pool
	}
	return 0
}

// A clientConn is a connection to a pool.
type clientConn struct {
	client *Client
	pool   int // the pool's process
	rpc    *jsonrpc2.Conn
	work   sync.WaitGroup // watch, and requests of the pool

	mu       sync.Mutex // guards the fields below
	stopping bool       // the pool accepts no more runs
	last     int
	runs     map[int]*clientRun
	checks   int  // in progress
	ended    bool // the runs that were answered are released
}

// A clientRun is a request that the pool works on.
type clientRun struct {
	req      agent.Request
	events   *outbox.Queue[agent.Event]
	released func()
	answered bool // guarded by clientConn.mu
	free     bool // the pool no longer works on it; guarded by clientConn.mu

	mu      sync.Mutex // guards the fields below, and is held while Files is called
	attempt int
	files   agent.Files
}

// alive reports whether the connection carries new requests.
func (c *clientConn) alive() bool {
	select {
	case <-c.rpc.DisconnectNotify():
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopping
}

func (c *clientConn) close() {
	c.rpc.Close()
	<-c.rpc.DisconnectNotify()
	c.work.Wait()
}

// watch waits for the end of the connection. It ends a connection whose pool does not
// answer.
func (c *clientConn) watch() {
	look := time.NewTicker(pingInterval)
	defer look.Stop()
	for running := true; running; {
		select {
		case <-c.rpc.DisconnectNotify():
			running = false
		case <-look.C:
			if c.busy() && !c.ping() {
				c.client.log.Warn("the pool does not answer: it is given up")
				c.rpc.Close()
			}
		}
	}
	c.client.mu.Lock()
	delete(c.client.conns, c)
	c.client.mu.Unlock()
	c.mu.Lock()
	c.ended = true
	var over []*clientRun
	for id, r := range c.runs {
		if r.answered {
			delete(c.runs, id)
			over = append(over, r)
		}
	}
	c.mu.Unlock()
	for _, r := range over {
		r.released()
	}
}

func (c *clientConn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)+c.checks > 0
}

// ping reports whether the pool answers.
func (c *clientConn) ping() bool {
	answered := make(chan struct{})
	go func() { // a pool that does not read blocks it until the connection ends
		defer close(answered)
		c.rpc.Call(context.Background(), methodPing, nil, nil)
	}()
	select {
	case <-answered: // or the connection has ended
		return true
	case <-time.After(pingTimeout):
		return false
	}
}

// check asks the pool for the agent's program.
func (c *clientConn) check(ctx context.Context, r *checkResult) error {
	count := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.checks += n
	}
	count(1)
	defer count(-1)
	return c.rpc.Call(ctx, methodCheck, nil, r)
}

// answered notes that a run has its answer. It waits for its release, unless the
// connection has ended.
func (c *clientConn) answered(run int) {
	c.mu.Lock()
	r := c.runs[run]
	free := false
	if r != nil {
		r.answered = true
		if free = r.free || c.ended; free {
			delete(c.runs, run)
		}
	}
	c.mu.Unlock()
	if free {
		r.released()
	}
}

// free notes that the pool no longer works on a run. Before its answer that says little: the
// answer may be that the run must be sent to another pool.
func (c *clientConn) free(run int) {
	c.mu.Lock()
	r := c.runs[run]
	answered := false
	if r != nil {
		r.free = true
		if answered = r.answered; answered {
			delete(c.runs, run)
		}
	}
	c.mu.Unlock()
	if answered {
		r.released()
	}
}

// run asks the pool. If the connection ends before the answer, the error is errLost, and
// released is not called.
func (c *clientConn) run(ctx context.Context, p runParams, req agent.Request, emit func(agent.Event), released func()) (agent.Result, error) {
	if ctx.Err() != nil {
		released()
		return agent.Result{}, context.Cause(ctx)
	}
	r := &clientRun{req: req, events: outbox.NewQueue(outbox.Limits[agent.Event]{}), released: released}
	c.mu.Lock()
	c.last++
	p.Run = c.last
	c.runs[p.Run] = r
	c.mu.Unlock()
	if deadline, ok := ctx.Deadline(); ok {
		p.TimeLeft = max(time.Until(deadline), 1) // 0 means none
	}
	began := time.Now()
	queued := time.Duration(0)
	flush := func() {
		for _, ev := range r.events.TakeAll() {
			if _, waits := ev.(agent.Queued); !waits && queued == 0 {
				queued = time.Since(began)
			}
			emit(ev)
		}
	}
	var reply runResult
	answered := make(chan error, 1)
	sent := make(chan struct{})
	go func() {
		call, err := c.rpc.DispatchCall(context.Background(), methodRun, p)
		close(sent)
		if err == nil {
			err = call.Wait(context.Background(), &reply)
		}
		answered <- err
	}()
	cancelled := ctx.Done()
	var partial <-chan time.Time
	for {
		select {
		case <-r.events.Ready():
			flush()
		case err := <-answered:
			flush()
			return c.conclude(ctx, p.Run, &reply, err, released)
		case <-cancelled:
			cancelled = nil
			partial = time.After(partialTimeout)
			go func() { // a pool that does not read must not delay this
				<-sent // otherwise the pool would not know what to cancel
				c.rpc.Notify(context.Background(), methodCancel, runID{p.Run})
			}()
		case <-partial:
			go func() { c.conclude(ctx, p.Run, &reply, <-answered, released) }()
			if queued == 0 {
				queued = time.Since(began)
			}
			return agent.Result{Queued: queued}, context.Cause(ctx)
		}
	}
}

// conclude returns the outcome of a run whose call has ended.
func (c *clientConn) conclude(ctx context.Context, run int, reply *runResult, err error, released func()) (agent.Result, error) {
	var refused *jsonrpc2.Error
	lost := err != nil && !errors.As(err, &refused)
	answered := err == nil && !reply.Closed
	if answered {
		c.answered(run)
	} else {
		c.drop(run)
	}
	switch {
	case ctx.Err() != nil:
		if !answered {
			released()
		}
		return reply.Result, context.Cause(ctx)
	case lost:
		c.rpc.Close()
		return agent.Result{}, errLost
	case err != nil:
		released()
		return agent.Result{}, errors.New(refused.Message)
	case reply.Closed: // the runs that it has accepted continue
		c.mu.Lock()
		c.stopping = true
		c.mu.Unlock()
		return agent.Result{}, errLost
	case reply.Fault != nil:
		return reply.Result, reply.Fault
	case reply.Error != "":
		return reply.Result, errors.New(reply.Error)
	}
	return reply.Result, nil
}

// drop forgets a run and returns it.
func (c *clientConn) drop(run int) *clientRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.runs[run]
	delete(c.runs, run)
	return r
}

func (c *clientConn) lookup(run int) *clientRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[run]
}

// handle handles a message of the pool. It must not block.
func (c *clientConn) handle(ctx context.Context, req *jsonrpc2.Request) {
	switch req.Method {
	case methodEvent:
		p, err := params[eventParams](req)
		r := c.lookup(p.Run)
		if err != nil || r == nil {
			return
		}
		if ev, err := p.event(); err == nil {
			r.events.Put(ev)
		}
	case methodReleased:
		if p, err := params[runID](req); err == nil {
			c.free(p.Run)
		}
	case methodAttempt, methodRead, methodWrite:
		p, err := params[fileParams](req)
		c.work.Go(func() {
			var result fileResult
			if err == nil {
				result.Text, err = c.file(req.Method, p)
			}
			if err != nil {
				c.rpc.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()})
				return
			}
			c.rpc.Reply(ctx, req.ID, result)
		})
	default:
		if !req.Notif {
			c.work.Go(func() {
				c.rpc.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "no such method"})
			})
		}
	}
}

var errNoFiles = errors.New("this attempt has ended")

// file serves a file of a run in change mode.
func (c *clientConn) file(method string, p fileParams) (text string, err error) {
	r := c.lookup(p.Run)
	if r == nil || r.req.Change == nil {
		return "", errNoFiles
	}
	if method == methodAttempt {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempt, r.files = p.Attempt, r.req.Change.Files()
		return "", nil
	}
	r.mu.Lock()
	files, current := r.files, r.attempt
	r.mu.Unlock()
	path, ok := c.client.here(p.Path)
	switch {
	case files == nil || current != p.Attempt:
		return "", errNoFiles
	case !ok:
		return "", fmt.Errorf("%s is not in a directory that both machines have", p.Path)
	case method == methodRead:
		text, err = files.Read(path)
	default:
		err = files.Write(path, p.Text)
	}
	return text, rename(err, path, p.Path) // the agent knows the file by its name there
}
