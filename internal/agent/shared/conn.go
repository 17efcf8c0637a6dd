package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/jsonrpc"
	"pollux/internal/outbox"
)

// A clientConn is a connection to a pool.
type clientConn struct {
	client *Client
	pool   int // the pool's process
	rpc    *jsonrpc.Conn
	link   *link

	mu       sync.Mutex // guards the fields below
	stopping bool       // the pool accepts no more requests
	last     int
	requests map[int]*request // that the pool works on
}

// A request is one that the pool works on.
type request struct {
	agent.Request
	news *outbox.Queue[eventParams]
	over chan struct{} // closed when the call has ended
	err  error         // of the call; set before over is closed

	mu      sync.Mutex // guards the fields below
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

// send sends a request. sent is closed when the pool can know it.
func (c *clientConn) send(ctx context.Context, req agent.Request) (r *request, id int, sent <-chan struct{}) {
	r = &request{Request: req, news: outbox.NewQueue(outbox.Limits[eventParams]{}), over: make(chan struct{})}
	c.mu.Lock()
	c.last++
	id = c.last
	c.requests[id] = r
	c.mu.Unlock()
	p := runParams{ID: id, Request: req}
	if deadline, ok := ctx.Deadline(); ok {
		p.TimeLeft = max(time.Until(deadline), 1) // 0 means none
	}
	sending := make(chan struct{})
	c.client.calls.Go(func() {
		defer close(r.over)
		call, err := c.rpc.Start(methodRun, p)
		close(sending)
		if err == nil {
			err = call.Wait(context.Background(), nil)
		}
		r.err = err
		c.drop(id)
	})
	c.client.calls.Go(func() { c.watch(r) })
	return r, id, sending
}

// watch ends the connection if the pool gives no sign of life until a request is over.
func (c *clientConn) watch(r *request) {
	look := time.NewTimer(silenceTimeout)
	defer look.Stop()
	for {
		select {
		case <-r.over:
			return
		case <-look.C:
		}
		left := silenceTimeout - c.link.quiet()
		if left <= 0 {
			c.client.log.Warn("the pool does not answer: it is given up")
			c.rpc.Close()
			left = silenceTimeout
		}
		look.Reset(left)
	}
}

// follow sends a request and emits its events. over is closed when the pool no longer works on
// the request. If the connection ends before the answer, the error is errLost.
func (c *clientConn) follow(ctx context.Context, req agent.Request, emit func(agent.Event)) (result agent.Result, over <-chan struct{}, err error) {
	if ctx.Err() != nil {
		return result, nil, context.Cause(ctx)
	}
	began := time.Now()
	queued := time.Duration(0)
	r, id, sent := c.send(ctx, req)
	// flush emits the events that have arrived. It returns the outcome, if that has.
	flush := func() *outcome {
		for _, p := range r.news.TakeAll() {
			if p.Outcome != nil {
				return p.Outcome
			}
			ev, err := p.event()
			if err != nil {
				continue
			}
			if _, waits := ev.(agent.Queued); !waits && queued == 0 {
				queued = time.Since(began)
			}
			emit(ev)
		}
		return nil
	}
	ended := false
	cancelled := ctx.Done()
	var partial <-chan time.Time
	for {
		select {
		case <-r.news.Ready():
		case <-r.over:
			ended = true
		case <-cancelled:
			cancelled = nil
			partial = time.After(partialTimeout)
			c.client.calls.Go(func() { // a pool that does not read must not delay this
				<-sent // otherwise the pool would not know what to cancel
				c.rpc.Notify(methodCancel, requestID{id})
			})
		case <-partial:
			if queued == 0 {
				queued = time.Since(began)
			}
			return agent.Result{Queued: queued}, r.over, context.Cause(ctx)
		}
		o := flush()
		switch {
		case o != nil && ctx.Err() != nil:
			return o.Result, r.over, context.Cause(ctx)
		case o != nil:
			return o.Result, r.over, o.err()
		case ended:
			return result, r.over, c.unanswered(ctx, r)
		}
	}
}

// unanswered returns the error of a request whose call has ended without an outcome.
func (c *clientConn) unanswered(ctx context.Context, r *request) error {
	refused, ok := errors.AsType[*jsonrpc.Error](r.err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !ok:
		c.rpc.Close()
		return errLost
	case refused.Code == codeEnding: // the requests that it has accepted continue
		c.mu.Lock()
		c.stopping = true
		c.mu.Unlock()
		return errLost
	}
	return errors.New(refused.Message)
}

func (c *clientConn) drop(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, id)
}

func (c *clientConn) lookup(id int) *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[id]
}

// receive handles a message of the pool. It must not block.
func (c *clientConn) receive(rpc *jsonrpc.Conn, req *jsonrpc.Request) {
	switch req.Method {
	case methodEvent:
		p, err := params[eventParams](req)
		r := c.lookup(p.ID)
		switch {
		case err != nil || r == nil:
		case p.Attempt > 0:
			r.begin(p.Attempt)
		default:
			r.news.Put(p)
		}
	case methodFile:
		p, err := params[fileParams](req)
		c.client.calls.Go(func() {
			text := ""
			if err == nil {
				text, err = c.file(p)
			}
			rpc.Answer(req.ID, text, err)
		})
	default:
		if !req.Notif {
			c.client.calls.Go(func() {
				rpc.Answer(req.ID, nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"})
			})
		}
	}
}

// begin begins an attempt in change mode.
func (r *request) begin(attempt int) {
	if r.Change != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempt, r.files = attempt, r.Change.Files()
	}
}

var errNoFiles = errors.New("this attempt has ended")

// file reads or writes a file of a request in change mode.
func (c *clientConn) file(p fileParams) (text string, err error) {
	r := c.lookup(p.ID)
	if r == nil {
		return "", errNoFiles
	}
	r.mu.Lock()
	files, attempt := r.files, r.attempt
	r.mu.Unlock()
	path, ok := c.client.cfg.Here(p.Path)
	switch {
	case files == nil || attempt != p.Attempt:
		return "", errNoFiles
	case !ok:
		return "", fmt.Errorf("%s is not in a directory that both machines have", p.Path)
	case p.Text != nil:
		err = files.Write(path, *p.Text)
	default:
		text, err = files.Read(path)
	}
	return text, rename(err, path, p.Path) // the agent knows the file by its name there
}
