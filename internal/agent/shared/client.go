package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"pollux/internal/agent"
	"pollux/internal/jsonrpc"
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
	// stateTimeout limits a question about the state of the pool, and checkTimeout one about
	// the agent's program.
	stateTimeout = 2 * time.Second
	checkTimeout = 30 * time.Second
	// A pool that gives no sign of life for silenceTimeout during a request, such as a
	// stopped process, counts as ended. A call of half a minute has time for another one.
	silenceTimeout = aliveInterval + 5*time.Second
)

// errLost reports that a connection ended before the answer, or that the pool ends.
var errLost = errors.New("the pool has ended")

// errPaused reports that no pool is tried, because none could be reached shortly before.
var errPaused = errors.New("it could not be reached a moment ago")

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
	// Check returns the program of a source, so that a check starts no pool. If it is nil,
	// the pool is asked.
	Check func(context.Context, agent.Source) (agent.Program, error)
	// RequireWall refuses a pool whose agents do not run behind a wall: see [agent.Wall].
	RequireWall bool
	// There and Here translate paths for the pool's machine and back. They are
	// nil if both are the same.
	There, Here func(path string) (string, bool)
	// Log may be nil.
	Log *slog.Logger
}

// A Client is an [agent.Runner] that asks the pool. All requests share one connection,
// which is opened with the first request and again when the pool has ended. A request
// whose connection ends before the answer is sent again.
type Client struct {
	cfg        Config
	log        *slog.Logger
	ctx        context.Context // ends with Close
	end        context.CancelCauseFunc
	connected  context.Context // for connections: ends after the last request
	disconnect func()
	connecting chan struct{}  // holds a token while a goroutine connects
	asking     sync.WaitGroup // methods that Close waits for
	calls      sync.WaitGroup // goroutines that serve connections

	mu     sync.Mutex // guards the fields below
	closed bool
	conn   *clientConn // the latest one
	paused time.Time   // no attempt to reach a pool until then

	localMu sync.Mutex // guards local, and is held while it is opened
	local   agent.Runner
}

// NewClient returns a runner that asks a pool. It does not connect yet.
func NewClient(cfg Config) *Client {
	same := func(path string) (string, bool) { return path, true }
	if cfg.There == nil {
		cfg.There, cfg.Here = same, same
	}
	c := &Client{cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), connecting: make(chan struct{}, 1)}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	c.connected, c.disconnect = context.WithCancel(context.Background())
	return c
}

// Close implements [agent.Runner]. The pool's processes keep running for others.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end(agent.ErrClosed)
	c.asking.Wait()
	c.disconnect()
	var err error
	if local := c.localRunner(); local != nil {
		err = local.Close()
	}
	c.calls.Wait()
	return err
}

// enter adds a method to those that Close waits for. It reports false if the client is closed.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.asking.Add(1)
	return true
}

// Run implements [agent.Runner].
func (c *Client) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (result agent.Result, err error) {
	if !c.enter() {
		req.Release(nil, nil)
		return result, agent.ErrClosed
	}
	defer c.asking.Done()
	var over <-chan struct{} // closed when no process works on the request any more; nil if none does
	defer func() { req.Release(&c.calls, over) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(agent.ErrClosed) })()
	there := req
	var ok bool
	if there.Dir, ok = c.cfg.There(req.Dir); !ok {
		return result, fmt.Errorf("%s is in no --map: add --map %s=THERE, with its name where the pool runs", req.Dir, req.Dir)
	}
	err = c.try(ctx, func(conn *clientConn) (err error) {
		if result, over, err = conn.follow(ctx, there, emit); errors.Is(err, errLost) {
			over = nil
			c.log.Info("the pool ended during a request: trying again", "error", err)
		}
		return err
	})
	if over != nil || ctx.Err() != nil {
		return result, err
	}
	if errors.Is(err, errLost) {
		err = fmt.Errorf("%w %d times before the answer: try again", errLost, maxAttempts)
	}
	local, err := c.openLocal(err)
	if err != nil {
		return result, err
	}
	done := make(chan struct{})
	here := req
	over, here.Released = done, func() { close(done) }
	return local.Run(ctx, here, emit)
}

// try calls f with a connection, and again with the next one if that ends.
func (c *Client) try(ctx context.Context, f func(*clientConn) error) (err error) {
	for range maxAttempts {
		var conn *clientConn
		if conn, err = c.connect(ctx); err == nil {
			err = f(conn)
		}
		if lost := errors.Is(err, errLost) || errors.Is(err, jsonrpc.ErrClosed) || Ended(err); !lost || ctx.Err() != nil {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// openLocal returns the local runner. why is the reason that the pool is not used.
func (c *Client) openLocal(why error) (agent.Runner, error) {
	if c.cfg.Local == nil {
		return nil, why
	}
	if !errors.Is(why, errPaused) {
		c.mu.Lock()
		c.paused = time.Now().Add(pauseAfterFailure)
		c.mu.Unlock()
	}
	c.localMu.Lock()
	defer c.localMu.Unlock()
	if c.local != nil {
		return c.local, nil
	}
	c.log.Warn("the pool cannot be used: this bridge runs its own processes", "error", why)
	var err error
	c.local, err = c.cfg.Local()
	return c.local, err
}

// localRunner returns the local runner, or nil if it is not open.
func (c *Client) localRunner() agent.Runner {
	c.localMu.Lock()
	defer c.localMu.Unlock()
	return c.local
}

// current returns the connection, or nil.
func (c *Client) current() *clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.alive() {
		return c.conn
	}
	return nil
}

// connect returns the connection, and opens it if necessary.
func (c *Client) connect(ctx context.Context) (*clientConn, error) {
	if conn := c.current(); conn != nil {
		return conn, nil
	}
	select {
	case c.connecting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.connecting }()
	if conn := c.current(); conn != nil {
		return conn, nil
	}
	c.mu.Lock()
	paused := time.Now().Before(c.paused)
	c.mu.Unlock()
	if paused && c.cfg.Local != nil {
		return nil, errPaused
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errors.New("the pool does not answer"))
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, nil
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
	conn := &clientConn{client: c, pool: w.PID, link: l, requests: make(map[int]*request)}
	conn.rpc = jsonrpc.NewConn(c.connected, l.messages(), conn.receive)
	c.calls.Go(conn.rpc.Wait)
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
		err = l.w.Encode(hello)
	}
	if err == nil {
		err = l.greeting(&w)
	}
	if err == nil {
		err = w.check(hello != nil && hello.Agent == "")
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

// call asks the pool for something other than a request.
func (c *Client) call(ctx context.Context, limit time.Duration, method string, params, result any) error {
	if !c.enter() {
		return agent.ErrClosed
	}
	defer c.asking.Done()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it does not answer"))
	defer cancel()
	return c.try(ctx, func(conn *clientConn) error { return conn.rpc.Call(ctx, method, params, result) })
}

// Check implements [agent.Runner].
func (c *Client) Check(ctx context.Context, from agent.Source) (agent.Program, error) {
	if c.cfg.Check != nil {
		return c.cfg.Check(ctx, from)
	}
	var r checkResult
	if err := c.call(ctx, checkTimeout, methodCheck, nil, &r); err != nil {
		return agent.Program{}, err
	}
	return r.Program, r.err()
}

// Ahead implements [agent.Runner].
func (c *Client) Ahead(_ agent.Source, dir string) {
	dir, ok := c.cfg.There(dir)
	if !ok || !c.enter() {
		return
	}
	go func() {
		defer c.asking.Done()
		if conn, err := c.connect(c.ctx); err == nil {
			conn.rpc.Notify(methodAhead, aheadParams{dir})
		}
	}()
}

// Forget implements [agent.Runner].
func (c *Client) Forget(id string) {
	if conn := c.current(); conn != nil {
		conn.rpc.Notify(methodForget, record{ID: id})
	}
	if local := c.localRunner(); local != nil {
		local.Forget(id)
	}
}

// Keep stores a conversation of n exchanges, so that another bridge can continue it. It waits for
// the pool, because another bridge asks over its own connection.
func (c *Client) Keep(id string, n int, data []byte) {
	if conn := c.current(); conn != nil {
		ctx, cancel := context.WithTimeout(c.ctx, stateTimeout)
		defer cancel()
		conn.rpc.Call(ctx, methodKeep, record{id, n, data}, nil)
	}
}

// Kept returns a conversation that has more than n exchanges at the pool, or nil. It fails
// if the pool cannot be asked.
func (c *Client) Kept(ctx context.Context, id string, n int) ([]byte, error) {
	var known record
	if err := c.call(ctx, stateTimeout, methodKept, record{ID: id, N: n}, &known); err != nil {
		return nil, fmt.Errorf("cannot ask the pool: %w", err)
	}
	return known.Data, nil
}

// Workers implements [agent.Runner]: it returns the processes of the runner that answers if no
// pool can be reached.
func (c *Client) Workers() []agent.Worker {
	if local := c.localRunner(); local != nil {
		return local.Workers()
	}
	return nil
}

// Pool returns the process of the pool that the client is connected to, or 0.
func (c *Client) Pool() int {
	if conn := c.current(); conn != nil {
		return conn.pool
	}
	return 0
}
