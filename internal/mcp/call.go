package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"pollux/internal/jsonrpc"
)

// A Tool is a row of the table of an agent's tools.
type Tool struct {
	Name, Description string
	// Schema is the JSON schema of the arguments. Output is the schema of [Result.Structured], or
	// empty.
	Schema, Output string
	Hints          *Hints         // may be nil
	Meta           map[string]any // may be nil
	// Run runs a call when all earlier calls have taken effect. An error becomes a result with
	// isError. After the error [ErrLater] the call has taken effect, and [Call.Answer] answers it.
	// The context ends when the agent cancels the call, which then has no answer unless it is
	// answered later, and with the session.
	Run func(ctx context.Context, c *Call) (*Result, error)
	// Concurrent lets calls run when they arrive, at the same time as others. Such a tool does not
	// affect other calls, and does not return ErrLater.
	Concurrent bool
}

// Hints tell an agent's user what a tool does.
type Hints struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"` // true if nil
	Idempotent  bool   `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"` // true if nil
}

// A Result is the result of a call of a tool.
type Result struct {
	Texts      []string
	Structured any            // an object, as JSON; nil if there is none
	Meta       map[string]any // may be nil
	IsError    bool
}

// Text returns a result that consists of texts.
func Text(texts ...string) *Result { return &Result{Texts: texts} }

// ErrLater is the error of [Tool.Run] for a call that is answered later.
var ErrLater = errors.New("the call is answered later")

var (
	// ErrUndelivered reports that the session ended before the agent had a message.
	ErrUndelivered  = errors.New("the agent disconnected before it received the message")
	errNotConnected = errors.New("not connected: send notifications/initialized first")
	errTooMuch      = errors.New("too many calls wait: wait for the answers to some of them")
)

// A Call is a request that has not been answered.
type Call struct {
	// Args are the arguments of the tool, as JSON. [Tool.Run] has them until it returns.
	Args json.RawMessage

	meta, inputs json.RawMessage // likewise
	stateless    bool            // the request follows [Stateless]

	session *Session
	id      json.RawMessage
	ctx     context.Context
	cancel  context.CancelFunc
	put     func(*outgoing) // gives the answer to the transport

	// Guarded by the session's mu:
	canceled   bool   // the agent has canceled the call
	later      bool   // the call has taken effect, and waits for its answer
	onCanceled func() // may be nil
}

// DecodeArgs decodes arguments into the struct that v points to, whose fields are zero.
func DecodeArgs(args json.RawMessage, v any) error {
	if len(args) == 0 {
		return nil
	}
	if err := jsonrpc.Decode(args, v); err != nil {
		return fmt.Errorf("the arguments do not fit: %w", err)
	}
	return nil
}

// OnCanceled sets what runs when the agent cancels the call before it is answered. f runs like a
// call, when all messages before the cancellation have taken effect, and answers the call.
func (c *Call) OnCanceled(f func()) {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	c.onCanceled = f
}

const (
	methodCall     = "tools/call"
	methodCanceled = "notifications/cancelled"
)

// canceled are the parameters of methodCanceled.
type canceled struct {
	ID json.RawMessage `json:"requestId"`
}

// methods are the methods of requests.
var methods = map[string]func(*Session, *Call, message){
	"initialize": (*Session).initialize,
	"ping":       func(_ *Session, c *Call, _ message) { c.succeed(struct{}{}) },
	"tools/list": (*Session).listTools,
	methodCall:   (*Session).callTool,
}

// receive handles a message of the agent. put gives the answer to a request to the transport. It
// reports false, and does nothing, for a request whose ID is in use.
func (s *Session) receive(m message, put func(*outgoing)) bool {
	var c *Call
	if m.isRequest() {
		c = &Call{Args: m.call.Args, meta: m.call.Meta, inputs: m.call.Inputs, session: s, id: slices.Clone(m.ID), put: put}
		c.ctx, c.cancel = context.WithCancel(s.Ctx)
		s.mu.Lock()
		twice := s.calls[string(c.id)] != nil
		if !twice {
			s.calls[string(c.id)] = c
		}
		s.mu.Unlock()
		if twice {
			c.cancel()
			return false
		}
		if problem := s.identify(c, m); problem != nil {
			c.reply(response{Version: "2.0", ID: c.id, Error: problem}, 0, nil)
			return true
		}
	}
	if s.dialect.Received != nil && m.Method != "" {
		s.dialect.Received(m.Method, m.Params)
	}
	switch {
	case c != nil:
		s.dispatch(c, m)
	case m.Method == "":
		s.answered(m)
	case m.Method == "notifications/initialized":
		s.greet()
	case m.Method == methodCanceled:
		var p canceled
		if jsonrpc.Decode(m.Params, &p) == nil {
			s.cancelCall(p.ID)
		}
	}
	return true
}

// dispatch starts to serve a request.
func (s *Session) dispatch(c *Call, m message) {
	serve := methods[m.Method]
	if c.stateless {
		serve = statelessMethods[m.Method]
	}
	switch {
	case serve == nil:
		c.fail(jsonrpc.CodeMethodNotFound, fmt.Sprintf("method %.80q not found", m.Method))
	case !c.stateless && !s.initialized() && m.Method != "initialize" && m.Method != "ping":
		c.fail(jsonrpc.CodeInvalidRequest, "send initialize first")
	default:
		serve(s, c, m)
	}
}

// callTool serves tools/call.
func (s *Session) callTool(c *Call, m message) {
	i := slices.IndexFunc(s.dialect.Tools, func(t Tool) bool { return t.Name == m.call.Name })
	if i < 0 {
		c.fail(jsonrpc.CodeInvalidParams, fmt.Sprintf("unknown tool %.80q", m.call.Name))
		return
	}
	s.mu.Lock()
	tooMany := len(s.calls) > maxCalls
	s.mu.Unlock()
	tool := &s.dialect.Tools[i]
	switch {
	case tooMany:
		c.Answer(nil, errTooMuch, nil)
	case tool.Concurrent:
		s.Go(func() { c.run(tool) })
	default:
		inTurn := func() {
			if s.isConnected() {
				c.run(tool)
			} else {
				c.Answer(nil, errNotConnected, nil)
			}
		}
		if !s.queue.Put(job{len(c.Args), inTurn}) {
			c.Answer(nil, errTooMuch, nil)
		}
	}
}

// A job takes effect in order.
type job struct {
	size int // in bytes
	run  func()
}

// work runs the queue.
func (s *Session) work() {
	for {
		for s.Ctx.Err() == nil {
			j, ok := s.queue.Take()
			if !ok {
				break
			}
			j.run()
		}
		select {
		case <-s.queue.Ready():
		case <-s.Ctx.Done():
			return
		}
	}
}

// cancelCall cancels the call with that ID.
func (s *Session) cancelCall(id json.RawMessage) {
	s.mu.Lock()
	c := s.calls[string(id)]
	first := c != nil && !c.canceled
	if first {
		c.canceled = true
	}
	s.mu.Unlock()
	if !first {
		return
	}
	c.cancel()
	s.enqueue(func() {
		s.mu.Lock()
		f := c.onCanceled
		s.mu.Unlock()
		if f != nil {
			f()
		}
	})
}

// enqueue runs f when all earlier messages have taken effect. It ends a session in which too much
// waits.
func (s *Session) enqueue(f func()) {
	if !s.queue.Put(job{run: f}) {
		s.End()
	}
}

// A toolResult is a [Result] as it is sent.
type toolResult struct {
	head
	Content    []textBlock `json:"content"`
	Structured any         `json:"structuredContent,omitempty"`
	IsError    bool        `json:"isError,omitempty"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Answer answers the call with a result, which is empty if nil, or with an error. It does not
// wait. Calls after the first have no effect. written is called once, on another goroutine: with
// nil when the agent has the answer, with an error if the session ended before that; it may be nil.
func (c *Call) Answer(r *Result, err error, written func(error)) {
	switch {
	case err != nil:
		r = &Result{Texts: []string{err.Error()}, IsError: true}
	case r == nil:
		r = &Result{}
	}
	res := toolResult{head: c.head(r.Meta), Content: []textBlock{}, Structured: r.Structured, IsError: r.IsError}
	size := 0
	for _, text := range r.Texts {
		res.Content = append(res.Content, textBlock{"text", text})
		size += len(text)
	}
	c.reply(response{Version: "2.0", ID: c.id, Result: res}, size, written)
}

// reply answers the request, unless it has been answered.
func (c *Call) reply(res response, size int, written func(error)) {
	s, o := c.session, &outgoing{message: res, size: size, answer: true, written: written}
	s.mu.Lock()
	ok := s.calls[string(c.id)] == c
	if ok {
		delete(s.calls, string(c.id))
		c.onCanceled = nil
		ok = s.acceptLocked(o)
	}
	s.mu.Unlock()
	c.cancel()
	if ok {
		c.put(o)
	} else if written != nil {
		go written(ErrUndelivered)
	}
}

func (c *Call) succeed(result any) {
	c.reply(response{Version: "2.0", ID: c.id, Result: result}, 0, nil)
}

func (c *Call) fail(code int64, text string) { c.reply(failure(c.id, code, text), 0, nil) }

// drop ends a call that its agent has canceled, without an answer. It reports whether it has.
func (c *Call) drop() bool {
	s := c.session
	s.mu.Lock()
	dropped := c.canceled && s.calls[string(c.id)] == c
	if dropped {
		delete(s.calls, string(c.id))
		s.idleLocked()
	}
	s.mu.Unlock()
	if dropped {
		c.put(nil)
	}
	return dropped
}

// run runs the call of a tool.
func (c *Call) run(tool *Tool) {
	r, err := tool.Run(c.ctx, c)
	c.Args, c.meta, c.inputs = nil, nil, nil // the answer may take hours
	switch {
	case err == ErrLater:
		c.session.mu.Lock()
		defer c.session.mu.Unlock()
		c.later = true
		c.session.idleLocked()
	case c.drop():
	case errors.Is(err, ErrInput):
		c.askForRoots()
	default:
		c.Answer(r, err, nil)
	}
}

// Stateless reports whether the call follows the version of MCP of that name.
func (c *Call) Stateless() bool { return c.stateless }

// Roots returns the URIs of the agent's folders, or none if it cannot name them. It does
// not ask an agent that follows [Stateless]: if the call came without them, the error is
// [ErrInput]. For such a call, Roots must be called before [Tool.Run] returns.
func (c *Call) Roots(ctx context.Context) (uris []string, err error) {
	if !c.stateless {
		return c.session.Roots(ctx)
	}
	if !c.session.clientInfo().roots {
		return nil, nil
	}
	var inputs map[string]json.RawMessage
	if jsonrpc.Decode(c.inputs, &inputs) != nil || inputs[inputRoots] == nil {
		return nil, ErrInput
	}
	return rootURIs(inputs[inputRoots])
}

// Reporter returns a function that reports the progress of the call, and waits until the agent has
// the report; nil if the agent wants none. It is called from one goroutine at a time, until ctx
// ends or [Tool.Run] returns.
func (c *Call) Reporter(ctx context.Context) func(message string) {
	var meta struct {
		Token json.RawMessage `json:"progressToken"`
	}
	if jsonrpc.Decode(c.meta, &meta) != nil || meta.Token == nil {
		return nil
	}
	type progress struct {
		Token   json.RawMessage `json:"progressToken"`
		Done    int             `json:"progress"`
		Message string          `json:"message"`
	}
	p := progress{Token: slices.Clone(meta.Token)}
	return func(message string) {
		p.Done++
		p.Message = message
		c.session.Send(ctx, "notifications/progress", p)
	}
}
