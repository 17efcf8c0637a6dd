package companion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
)

// A conn is the connection of one attached client of the editor protocol.
//
// One goroutine handles the client's messages in the order in which they arrive.
// Another writes all messages to the client, including answers, from a queue. So
// a client that does not read delays no other client, and a client that writes
// before it reads does not block itself.
type conn struct {
	rpc   *jsonrpc.Conn
	start func(editor.InitializeParams) (*Companion, error)

	owner bool // the client started the companion; its roots are the companion's
	page  bool // the client is the browser page, which needs no token

	handling sync.Mutex // held while a message is handled; guards the next three
	ended    bool
	c        *Companion // after initialize
	params   editor.InitializeParams

	env map[string]string // as sent to the client; once attached, guarded by Companion.mu

	out  *editor.Outbox
	left chan struct{} // closed when the client has left and is detached

	mu      sync.Mutex
	changed map[string]bool // diffs whose diff/changed is queued
}

// Serve serves the client that starts a companion, such as an editor's plugin,
// until it leaves. It calls start when the client sends initialize, and again if
// start failed before.
func Serve(rwc io.ReadWriteCloser, start func(editor.InitializeParams) (*Companion, error)) {
	(&conn{start: start, owner: true}).serve(rwc)
}

func (d *conn) serve(rwc io.ReadWriteCloser) {
	d.changed, d.left = make(map[string]bool), make(chan struct{})
	defer close(d.left)
	d.out = editor.NewOutbox(func() { d.rpc.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan struct{})
	handle := func(_ *jsonrpc.Conn, req *jsonrpc.Request) {
		<-ready
		d.handle(req)
	}
	d.rpc = jsonrpc.NewConn(ctx, editor.Drained(editor.NewStream(rwc), d.out), handle)
	close(ready)
	<-d.rpc.DisconnectNotify()
	cancel()
	d.out.Close()
	d.handling.Lock()
	d.ended = true
	d.handling.Unlock()
	if d.c != nil {
		d.c.detach(d)
	}
}

// Attach serves another client of a running companion.
func (c *Companion) Attach(rwc io.ReadWriteCloser) { c.serve(rwc, &conn{}) }

// AttachPage serves a browser page, which gets no token.
func (c *Companion) AttachPage(rwc io.ReadWriteCloser) { c.serve(rwc, &conn{page: true}) }

func (c *Companion) serve(rwc io.ReadWriteCloser, d *conn) {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		rwc.Close()
		return
	}
	c.attached.Add(1)
	c.mu.Unlock()
	defer c.attached.Done()
	d.start = func(editor.InitializeParams) (*Companion, error) { return c, nil }
	d.serve(rwc)
}

// Error codes in addition to those that JSON-RPC defines.
const (
	codeFailed         = -32000 // the message says why, for the user to read
	codeNotInitialized = -32002
)

func (d *conn) handle(req *jsonrpc.Request) {
	d.handling.Lock()
	defer d.handling.Unlock()
	defer crash.Report()
	if d.ended {
		return
	}
	first := d.c == nil
	result, err := d.dispatch(req)
	if work, ok := result.(later); ok && err == nil {
		d.c.background(func() { d.reply(req, work) })
	} else {
		d.reply(req, func() (any, error) { return result, err })
	}
	if first && d.c != nil {
		d.c.attach(d) // only now, since the answer to initialize comes first
	}
}

// A later makes the answer to a request that takes some time. It does not hold up the
// client's next messages.
type later func() (any, error)

// reply answers a request, unless it is a notification.
func (d *conn) reply(req *jsonrpc.Request, work later) {
	result, err := work()
	if req.Notif {
		return
	}
	var reply json.RawMessage
	if err == nil {
		reply, err = jsonrpc.Encode(result)
	}
	d.out.Put(len(reply), func(context.Context) { d.rpc.AnswerOr(codeFailed, req.ID, reply, err) })
}

func (d *conn) dispatch(req *jsonrpc.Request) (any, error) {
	if req.Method == editor.MethodInitialize {
		return d.initialize(req)
	}
	if d.c == nil {
		return nil, &jsonrpc.Error{Code: codeNotInitialized, Message: "send initialize first"}
	}
	switch req.Method {
	case editor.MethodContextUpdate:
		return with(req, func(s editor.Snapshot) (any, error) {
			defer d.c.store.update(d, s) // last: it uses the ignore files in the roots
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
	case editor.MethodDiagnosticsChanged:
		return with(req, func(p editor.DiagnosticsChanged) (any, error) {
			d.c.diagnosticsChanged(p.Paths)
			return nil, nil
		})
	case editor.MethodDiffEdit:
		return with(req, func(ch editor.DiffChange) (any, error) { d.c.edit(d, ch); return nil, nil })
	case editor.MethodDiffAccept:
		return with(req, func(a editor.DiffAccept) (any, error) { return d.decide(a, d.c.accept) })
	case editor.MethodDiffSave:
		return with(req, func(a editor.DiffAccept) (any, error) { return d.decide(a, d.c.save) })
	case editor.MethodDiffReject:
		return with(req, func(id editor.DiffID) (any, error) { return struct{}{}, d.c.reject(id.ID) })
	case editor.MethodDiffList:
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		list := editor.DiffList{Diffs: []editor.Diff{}}
		for _, diff := range d.c.diffsLocked(func(diff *diff) bool { return diff.visibleTo(d) }) {
			list.Diffs = append(list.Diffs, diff.viewLocked())
		}
		return list, nil
	case editor.MethodDiffHunks:
		return with(req, d.c.hunks)
	case editor.MethodDiffHunk:
		return with(req, d.c.takeHunk)
	case editor.MethodFileSaved:
		return with(req, func(p editor.FilePath) (any, error) {
			d.c.outside.account(p.Path)
			return nil, nil
		})
	case editor.MethodOutsideOpen:
		return with(req, func(p editor.FilePath) (any, error) { return d.c.openOutside(d, p.Path) })
	case editor.MethodOutsideDismiss:
		return with(req, func(p editor.FilePath) (any, error) {
			d.c.outside.dismiss(p.Path)
			return struct{}{}, nil
		})
	case editor.MethodPrompt:
		return with(req, func(p editor.PromptParams) (any, error) { return d.c.prompt(p), nil })
	case editor.MethodSend:
		if d.page {
			return nil, errors.New("the review page does not type into terminals: use `pollux send`")
		}
		return with(req, func(p editor.SendParams) (any, error) {
			return later(func() (any, error) { return d.c.send(p) }), nil
		})
	case editor.MethodStatus:
		return with(req, func(p editor.StatusParams) (any, error) {
			status := d.c.Status()
			if p.Commands != "" {
				status.Text = status.Describe(p.Commands)
			}
			return status, nil
		})
	case editor.MethodReviewLink:
		url, err := d.c.host.Link()
		return editor.Link{URL: url}, err
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "unknown method " + req.Method}
}

// decide accepts or saves a diff. If that has no effect, the client's text is an edit.
func (d *conn) decide(a editor.DiffAccept, decide func(editor.DiffAccept) (editor.DiffAcceptResult, error)) (any, error) {
	res, err := decide(a)
	if a.Content != "" && isText(a.Content) && (err != nil || res.Status != editor.StatusAccepted) {
		d.c.edit(d, editor.DiffChange{ID: a.ID, Content: &a.Content})
	}
	return res, err
}

// with decodes the parameters for f.
func with[T any](req *jsonrpc.Request, f func(T) (any, error)) (any, error) {
	v, err := editor.Params[T](req)
	if err != nil {
		return nil, err
	}
	return f(v)
}

func (d *conn) initialize(req *jsonrpc.Request) (any, error) {
	if d.c != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "initialize was sent before"}
	}
	p, err := editor.Params[editor.InitializeParams](req)
	if err != nil {
		return nil, err
	}
	if p.Protocol != editor.ProtocolVersion {
		return nil, fmt.Errorf("the plugin uses version %d of the editor protocol, "+
			"and this pollux version %d: update the older of the two",
			p.Protocol, editor.ProtocolVersion)
	}
	c, err := d.start(p)
	if err != nil {
		return nil, err
	}
	d.c, d.params = c, p
	res := editor.InitializeResult{
		Protocol: editor.ProtocolVersion,
		Server:   editor.Implementation{Name: "pollux", Version: c.cfg.Version},
		PID:      os.Getpid(), Port: c.host.Port(),
	}
	if !d.page {
		res.Token, res.Env = c.host.Token(), c.host.Env()
		d.env = res.Env
	}
	for _, k := range c.host.Agents() {
		res.Agents = append(res.Agents, k.AgentKind)
	}
	return res, nil
}

// attach adds a client and shows it the pending diffs. A client that comes too late is
// disconnected.
func (c *Companion) attach(d *conn) {
	defer c.host.ViewsChanged()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		d.rpc.Close()
		return
	}
	c.conns = append(c.conns, d)
	d.notify(editor.MethodClients, editor.Clients{Clients: c.clientsLocked()})
	d.envLocked()
	if d.params.Trusted != nil {
		c.store.update(d, editor.Snapshot{Trusted: d.params.Trusted})
	}
	if d.params.Diff {
		for _, diff := range c.diffsLocked(func(*diff) bool { return true }) {
			switch {
			case diff.visibleTo(d):
				d.offer(diff, func(error) {})
			case diff.notice != "":
				d.notify(editor.MethodMessage, diff.noticeMessage())
			}
		}
	}
	if d.page { // it may have been loaded again
		for _, x := range c.unwrittenLocked() {
			d.notify(editor.MethodMessage, *x.warning)
		}
	}
	if list := c.outsideLocked(); len(list.Files) > 0 {
		d.notify(editor.MethodOutside, list)
	}
}

// envLocked sends the environment for agents if it has changed since the client received it.
func (d *conn) envLocked() {
	if env := d.c.env; env != nil && !d.page && !maps.Equal(env, d.env) {
		d.env = env
		d.notify(editor.MethodEnv, editor.Env{Env: env})
	}
}

// detach removes a client. If it was the last one that shows diffs, and the
// user cannot open the review page, detach answers the waiting agents.
func (c *Companion) detach(d *conn) {
	c.store.forget(d)
	var ended []*diff
	c.mu.Lock()
	c.conns = slices.DeleteFunc(c.conns, func(o *conn) bool { return o == d })
	maps.DeleteFunc(c.diffs, func(_ string, diff *diff) bool { return diff.viewer == d })
	if d.params.Diff && len(c.surfacesLocked()) == 0 && !c.cfg.Page {
		ended = c.rejectAllLocked()
	}
	c.mu.Unlock()
	for _, d := range ended {
		c.end(d)
	}
	c.host.ViewsChanged()
}

func (d *conn) notify(method string, params any) {
	data, err := jsonrpc.Encode(params)
	if err != nil {
		return
	}
	d.out.Put(len(data), func(context.Context) { d.rpc.Notify(method, json.RawMessage(data)) })
}

// call sends a request from the writing goroutine. done receives the outcome,
// unless the client leaves first.
func (d *conn) call(ctx context.Context, method string, params, result any, done func(error)) {
	wait, err := d.rpc.Start(method, params)
	if err != nil {
		done(err)
		return
	}
	go func() { done(wait.Wait(ctx, result)) }()
}

// diagnostics asks the client for the diagnostics of a file, or of all files; done
// receives the answer.
func (d *conn) diagnostics(path string, done func([]editor.FileDiagnostics, error)) {
	d.out.Put(0, func(ctx context.Context) {
		res := new(editor.DiagnosticsResult)
		params := editor.DiagnosticsParams{Path: path}
		d.call(ctx, editor.MethodDiagnostics, params, res, func(err error) { done(res.Files, err) })
	})
}
