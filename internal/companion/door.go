package companion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/adapter"
)

// A door is one attached client of the adapter protocol.
//
// What it says is handled in the order in which it comes, on one goroutine.
// What it receives, answers included, is queued and written by another: a
// client which does not read holds up nobody else, and a client which writes
// before it reads does not hold up itself.
type door struct {
	conn  *jsonrpc2.Conn
	start func(adapter.InitializeParams) (*Companion, error)

	owner bool // it started the companion; its roots are the companion's
	page  bool // it is the browser page, which needs no token

	handling sync.Mutex // held while a message is handled; guards the next three
	ended    bool
	c        *Companion // after initialize
	params   adapter.InitializeParams

	calls int // requests sent; the writer's

	out *adapter.Outbox

	mu      sync.Mutex
	changed map[string]bool // diffs whose diff/changed is queued
}

// Serve serves the client that a companion is for, an editor's plugin, until it
// goes. start starts the companion when the client's initialize message comes;
// it is called again if it failed.
func Serve(conn io.ReadWriteCloser, start func(adapter.InitializeParams) (*Companion, error)) {
	(&door{start: start, owner: true}).serve(conn)
}

func (d *door) serve(conn io.ReadWriteCloser) {
	d.changed = make(map[string]bool)
	d.out = adapter.NewOutbox(func() { d.conn.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan struct{})
	d.conn = adapter.NewConn(ctx, adapter.Drained(adapter.NewStream(conn), d.out), handlerFunc(func(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) {
		<-ready
		d.handle(req)
	}))
	close(ready)
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer d.onPanic()
		d.out.Run(ctx)
	}()
	<-d.conn.DisconnectNotify()
	cancel()
	select {
	case <-written:
	case <-time.After(adapter.DrainTimeout): // a pipe that nobody reads; closing it ends no write
	}
	d.handling.Lock()
	d.ended = true
	d.handling.Unlock()
	if d.c != nil {
		d.c.detach(d)
	}
}

// Attach serves a further client of a running companion.
func (c *Companion) Attach(conn io.ReadWriteCloser) { c.attachDoor(conn, &door{}) }

// AttachPage serves a browser page, which gets no token.
func (c *Companion) AttachPage(conn io.ReadWriteCloser) { c.attachDoor(conn, &door{page: true}) }

func (c *Companion) attachDoor(conn io.ReadWriteCloser, d *door) {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		conn.Close()
		return
	}
	c.attached.Add(1)
	c.mu.Unlock()
	defer c.attached.Done()
	d.start = func(adapter.InitializeParams) (*Companion, error) { return c, nil }
	d.serve(conn)
}

type handlerFunc func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request)

func (f handlerFunc) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	f(ctx, conn, req)
}

// Error codes of the protocol beyond JSON-RPC's own.
const (
	codeFailed         = -32000 // the message says why, for the user to read
	codeNotInitialized = -32002
)

func (d *door) handle(req *jsonrpc2.Request) {
	d.handling.Lock()
	defer d.handling.Unlock()
	defer d.onPanic()
	if d.ended {
		return
	}
	first := d.c == nil
	result, err := d.dispatch(req)
	if !req.Notif {
		var reply json.RawMessage
		if err == nil {
			reply, err = json.Marshal(result)
		}
		d.out.Put(len(reply), func(ctx context.Context) {
			var rpc *jsonrpc2.Error
			switch {
			case err == nil:
				d.conn.Reply(ctx, req.ID, reply)
			case errors.As(err, &rpc):
				d.conn.ReplyWithError(ctx, req.ID, rpc)
			default:
				d.conn.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: codeFailed, Message: err.Error()})
			}
		})
	}
	if first && d.c != nil {
		d.c.attach(d) // only now: the answer to initialize comes first
	}
}

func (d *door) dispatch(req *jsonrpc2.Request) (any, error) {
	if req.Method == adapter.MethodInitialize {
		return d.initialize(req)
	}
	if d.c == nil {
		return nil, &jsonrpc2.Error{Code: codeNotInitialized, Message: "send initialize first"}
	}
	switch req.Method {
	case adapter.MethodContextUpdate:
		return with(req, func(s adapter.Snapshot) (any, error) {
			d.c.store.update(d, s)
			if len(s.Roots) == 0 || !d.owner {
				return nil, nil
			}
			err := d.c.SetRoots(s.Roots)
			if err != nil {
				d.c.tell("error", err.Error())
			}
			return nil, err
		})
	case adapter.MethodContextEvent:
		return with(req, func(e adapter.ContextEvent) (any, error) {
			if !slices.Contains([]string{"focus", "close", "quit"}, e.Event) {
				return nil, fmt.Errorf("unknown event %q: use focus, close or quit", e.Event)
			}
			d.c.store.event(e)
			return struct{}{}, nil
		})
	case adapter.MethodDiffEdit:
		return with(req, func(ch adapter.DiffChange) (any, error) { d.c.edit(d, ch); return nil, nil })
	case adapter.MethodDiffAccept:
		return with(req, func(a adapter.DiffAccept) (any, error) { return d.c.accept(a) })
	case adapter.MethodDiffSave:
		return with(req, func(a adapter.DiffAccept) (any, error) { return d.c.save(a) })
	case adapter.MethodDiffReject:
		return with(req, func(id adapter.DiffID) (any, error) { return struct{}{}, d.c.reject(id.ID) })
	case adapter.MethodDiffList:
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		list := adapter.DiffList{Diffs: []adapter.Diff{}}
		for _, diff := range d.c.shownLocked() {
			list.Diffs = append(list.Diffs, diff.viewLocked())
		}
		return list, nil
	case adapter.MethodDiffHunks:
		return with(req, d.c.hunks)
	case adapter.MethodDiffHunk:
		return with(req, d.c.takeHunk)
	case adapter.MethodPrompt:
		return with(req, func(p adapter.PromptParams) (any, error) { return prompt(p, d.c.Roots()), nil })
	case adapter.MethodStatus:
		return d.c.Status(), nil
	case adapter.MethodReviewLink:
		url, err := d.c.Link()
		return adapter.Link{URL: url}, err
	}
	return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "unknown method " + req.Method}
}

// onPanic, deferred, unpublishes the companion before a panic goes on.
func (d *door) onPanic() {
	if r := recover(); r != nil {
		if d.c != nil {
			d.c.Unpublish()
		}
		panic(r)
	}
}

// with decodes the parameters for f.
func with[T any](req *jsonrpc2.Request, f func(T) (any, error)) (any, error) {
	v, err := adapter.Params[T](req)
	if err != nil {
		return nil, err
	}
	return f(v)
}

func (d *door) initialize(req *jsonrpc2.Request) (any, error) {
	if d.c != nil {
		return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidRequest, Message: "initialize was sent before"}
	}
	p, err := adapter.Params[adapter.InitializeParams](req)
	if err != nil {
		return nil, err
	}
	if p.Protocol != adapter.ProtocolVersion {
		return nil, fmt.Errorf("the plugin speaks version %d of the adapter protocol, this pollux version %d: update the older of the two", p.Protocol, adapter.ProtocolVersion)
	}
	c, err := d.start(p)
	if err != nil {
		return nil, err
	}
	d.c, d.params = c, p
	res := adapter.InitializeResult{
		Protocol: adapter.ProtocolVersion,
		Server:   adapter.Implementation{Name: "pollux", Version: c.cfg.Version},
		PID:      os.Getpid(), Port: c.Port(),
	}
	if !d.page {
		res.Token, res.Env = c.server.Token(), c.Env()
	}
	return res, nil
}

// attach makes the door known and shows it the diffs that wait.
func (c *Companion) attach(d *door) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doors = append(c.doors, d)
	d.notify(adapter.MethodClients, adapter.Clients{Clients: c.clients()})
	if d.params.Trusted != nil {
		c.store.update(d, adapter.Snapshot{Trusted: d.params.Trusted})
	}
	if d.params.Diff {
		for _, diff := range c.diffsLocked(func(*diff) bool { return true }) {
			switch {
			case diff.shown:
				d.openDiff(diff.viewLocked(), func(error) {})
			case diff.notice != "":
				d.notify(adapter.MethodMessage, diff.noticeMessage())
			}
		}
	}
}

// detach forgets a client. When it was the last that shows diffs, and nobody
// can open the review page, the CLIs that wait are answered.
func (c *Companion) detach(d *door) {
	c.store.forget(d)
	var ended []*diff
	c.mu.Lock()
	c.doors = slices.DeleteFunc(c.doors, func(o *door) bool { return o == d })
	if d.params.Diff && len(c.surfacesLocked()) == 0 && !c.page() {
		ended = c.rejectAllLocked()
	}
	c.mu.Unlock()
	for _, d := range ended {
		c.record(d)
	}
}

func (d *door) notify(method string, params any) {
	data, err := json.Marshal(params)
	if err != nil {
		return
	}
	d.out.Put(len(data), func(ctx context.Context) { d.conn.Notify(ctx, method, json.RawMessage(data)) })
}

// diffChanged sends the text of a diff as it is when the client gets to read
// it: of many edits a slow client gets the last, and none of a diff that has
// ended.
func (d *door) diffChanged(diff *diff) {
	c, id := diff.companion, diff.id
	d.mu.Lock()
	queued := d.changed[id]
	d.changed[id] = true
	d.mu.Unlock()
	if queued {
		return
	}
	d.out.Put(0, func(ctx context.Context) {
		d.mu.Lock()
		delete(d.changed, id)
		d.mu.Unlock()
		c.mu.Lock()
		diff := c.diffs[id]
		if diff == nil {
			c.mu.Unlock()
			return
		}
		content := diff.content
		c.mu.Unlock()
		d.conn.Notify(ctx, adapter.MethodDiffChanged, adapter.DiffChange{ID: id, Content: &content})
	})
}

// view returns a diff as surfaces see it now, unless it has ended.
func (c *Companion) view(id string) (adapter.Diff, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.diffs[id]
	if d == nil || !d.shown {
		return adapter.Diff{}, false
	}
	return d.viewLocked(), true
}

// call sends a request, on the goroutine that writes; done gets its outcome,
// unless the client goes first. The IDs are far from those of clients: Vim takes
// nothing but numbers, and a request with the number of one of its own for the
// answer to that.
func (d *door) call(ctx context.Context, method string, params, result any, done func(error)) {
	d.calls++
	id := jsonrpc2.ID{Num: firstID + uint64(d.calls)}
	wait, err := d.conn.DispatchCall(ctx, method, params, jsonrpc2.PickID(id))
	if err != nil {
		done(err)
		return
	}
	go func() { done(wait.Wait(ctx, result)) }()
}

const firstID = 1_000_000_000

var errEnded = errors.New("the change was answered before it could be shown")

// openDiff shows a diff; done gets the client's answer. The queue holds no texts:
// a client that is slow gets the diff as it is by then, and none that has ended.
func (d *door) openDiff(v adapter.Diff, done func(error)) {
	c, id := d.c, v.ID
	d.out.Put(0, func(ctx context.Context) {
		v, ok := c.view(id)
		if !ok {
			done(errEnded)
			return
		}
		d.call(ctx, adapter.MethodDiffOpen, v, nil, done)
	})
}

// closeDiff closes a diff; done gets the text as the user left it, or nil.
func (d *door) closeDiff(p adapter.DiffClose, done func(*string)) {
	d.out.Put(0, func(ctx context.Context) {
		res := new(adapter.DiffCloseResult)
		d.call(ctx, adapter.MethodDiffClose, p, res, func(error) { done(res.Content) })
	})
}
