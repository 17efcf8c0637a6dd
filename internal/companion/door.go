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

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/editor"
)

// A door is one attached client of the adapter protocol.
//
// What it says is handled in the order in which it comes, on one goroutine.
// What it receives, answers included, is queued and written by another: a
// client which does not read holds up nobody else, and a client which writes
// before it reads does not hold up itself.
type door struct {
	conn  *jsonrpc2.Conn
	start func(editor.InitializeParams) (*Companion, error)

	owner bool // it started the companion; its roots are the companion's
	page  bool // it is the browser page, which needs no token

	handling sync.Mutex // held while a message is handled; guards the next three
	ended    bool
	c        *Companion // after initialize
	params   editor.InitializeParams

	calls int // requests sent; the writer's

	out *editor.Outbox

	mu      sync.Mutex
	changed map[string]bool // diffs whose diff/changed is queued
}

// Serve serves the client that a companion is for, an editor's plugin, until it
// goes. start starts the companion when the client's initialize message comes;
// it is called again if it failed.
func Serve(conn io.ReadWriteCloser, start func(editor.InitializeParams) (*Companion, error)) {
	(&door{start: start, owner: true}).serve(conn)
}

func (d *door) serve(conn io.ReadWriteCloser) {
	d.changed = make(map[string]bool)
	d.out = editor.NewOutbox(func() { d.conn.Close() }, d.onPanic)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan struct{})
	d.conn = editor.NewConn(ctx, editor.Drained(editor.NewStream(conn), d.out), handlerFunc(func(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) {
		<-ready
		d.handle(req)
	}))
	close(ready)
	<-d.conn.DisconnectNotify()
	cancel()
	d.out.Close()
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
	d.start = func(editor.InitializeParams) (*Companion, error) { return c, nil }
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
	if req.Method == editor.MethodInitialize {
		return d.initialize(req)
	}
	if d.c == nil {
		return nil, &jsonrpc2.Error{Code: codeNotInitialized, Message: "send initialize first"}
	}
	switch req.Method {
	case editor.MethodContextUpdate:
		return with(req, func(s editor.Snapshot) (any, error) {
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
	case editor.MethodContextEvent:
		return with(req, func(e editor.ContextEvent) (any, error) {
			if !slices.Contains([]string{"focus", "close", "quit"}, e.Event) {
				return nil, fmt.Errorf("unknown event %q: use focus, close or quit", e.Event)
			}
			d.c.store.event(e)
			return struct{}{}, nil
		})
	case editor.MethodDiffEdit:
		return with(req, func(ch editor.DiffChange) (any, error) { d.c.edit(d, ch); return nil, nil })
	case editor.MethodDiffAccept:
		return with(req, func(a editor.DiffAccept) (any, error) { return d.c.accept(a) })
	case editor.MethodDiffSave:
		return with(req, func(a editor.DiffAccept) (any, error) { return d.c.save(a) })
	case editor.MethodDiffReject:
		return with(req, func(id editor.DiffID) (any, error) { return struct{}{}, d.c.reject(id.ID) })
	case editor.MethodDiffList:
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		list := editor.DiffList{Diffs: []editor.Diff{}}
		for _, diff := range d.c.shownLocked() {
			list.Diffs = append(list.Diffs, diff.viewLocked())
		}
		return list, nil
	case editor.MethodDiffHunks:
		return with(req, d.c.hunks)
	case editor.MethodDiffHunk:
		return with(req, d.c.takeHunk)
	case editor.MethodPrompt:
		return with(req, func(p editor.PromptParams) (any, error) { return prompt(p, d.c.Roots()), nil })
	case editor.MethodStatus:
		return d.c.Status(), nil
	case editor.MethodReviewLink:
		url, err := d.c.Link()
		return editor.Link{URL: url}, err
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
	v, err := editor.Params[T](req)
	if err != nil {
		return nil, err
	}
	return f(v)
}

func (d *door) initialize(req *jsonrpc2.Request) (any, error) {
	if d.c != nil {
		return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidRequest, Message: "initialize was sent before"}
	}
	p, err := editor.Params[editor.InitializeParams](req)
	if err != nil {
		return nil, err
	}
	if p.Protocol != editor.ProtocolVersion {
		return nil, fmt.Errorf("the plugin speaks version %d of the adapter protocol, this pollux version %d: update the older of the two", p.Protocol, editor.ProtocolVersion)
	}
	c, err := d.start(p)
	if err != nil {
		return nil, err
	}
	d.c, d.params = c, p
	res := editor.InitializeResult{
		Protocol: editor.ProtocolVersion,
		Server:   editor.Implementation{Name: "pollux", Version: c.cfg.Version},
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
	d.notify(editor.MethodClients, editor.Clients{Clients: c.clients()})
	if d.params.Trusted != nil {
		c.store.update(d, editor.Snapshot{Trusted: d.params.Trusted})
	}
	if d.params.Diff {
		for _, diff := range c.diffsLocked(func(*diff) bool { return true }) {
			switch {
			case diff.shown:
				d.openDiff(diff.viewLocked(), func(error) {})
			case diff.notice != "":
				d.notify(editor.MethodMessage, diff.noticeMessage())
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
		d.conn.Notify(ctx, editor.MethodDiffChanged, editor.DiffChange{ID: id, Content: &content})
	})
}

// view returns a diff as surfaces see it now, unless it has ended.
func (c *Companion) view(id string) (editor.Diff, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.diffs[id]
	if d == nil || !d.shown {
		return editor.Diff{}, false
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
func (d *door) openDiff(v editor.Diff, done func(error)) {
	c, id := d.c, v.ID
	d.out.Put(0, func(ctx context.Context) {
		v, ok := c.view(id)
		if !ok {
			done(errEnded)
			return
		}
		d.call(ctx, editor.MethodDiffOpen, v, nil, done)
	})
}

// closeDiff closes a diff; done gets the text as the user left it, or nil.
func (d *door) closeDiff(p editor.DiffClose, done func(*string)) {
	d.out.Put(0, func(ctx context.Context) {
		res := new(editor.DiffCloseResult)
		d.call(ctx, editor.MethodDiffClose, p, res, func(error) { done(res.Content) })
	})
}
