// Package jsonrpc is one end of a connection that carries JSON-RPC 2.0. The editor protocol,
// the agents that Pollux asks, and the pool use it, each with its own [Stream].
package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Error codes of JSON-RPC.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
)

// ErrClosed reports that a connection has ended.
var ErrClosed = errors.New("the connection is closed")

// An Error is the error that answers a request.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// An ID is the ID of a request, as JSON: a number or a string.
type ID string

// A Request is a request of the other side, or a notification, which has no ID.
type Request struct {
	ID     ID
	Method string
	Params json.RawMessage // nil without parameters
	Notif  bool
}

// A Message is any message of JSON-RPC 2.0. Its raw parts share the memory of the bytes
// that were read.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
}

// Parse decodes a message.
func Parse(data []byte) (m Message, err error) {
	if err := Decode(data, &m); err != nil {
		return m, err
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	answers := m.Result != nil || m.Error != nil
	switch {
	case (m.Method == nil) != answers:
		return m, errors.New("it is neither a request nor an answer")
	case m.ID != nil && !strings.ContainsAny(string(m.ID[:1]), `"-0123456789`):
		return m, errors.New("its id is neither a number nor a string")
	}
	return m, nil
}

// A HandlerFunc handles a message of the other side. It is called for one message after
// the other.
type HandlerFunc func(*Conn, *Request)

// HandlerWithError returns a handler that answers requests with what f returns.
func HandlerWithError(f func(*Conn, *Request) (any, error)) HandlerFunc {
	return func(c *Conn, req *Request) {
		result, err := f(c, req)
		if !req.Notif {
			c.Answer(req.ID, result, err)
		}
	}
}

// Answer answers a request with a result, or with an error: an [*Error], or another one as an
// internal error.
func (c *Conn) Answer(id ID, result any, err error) error {
	return c.AnswerOr(CodeInternalError, id, result, err)
}

// AnswerOr is [Conn.Answer] with another code for an error that has none.
func (c *Conn) AnswerOr(code int64, id ID, result any, err error) error {
	var rpc *Error
	switch {
	case err == nil:
		return c.Reply(id, result)
	case !errors.As(err, &rpc):
		rpc = &Error{Code: code, Message: err.Error()}
	}
	return c.send(`"id":`+string(id), "error", rpc)
}

// A Conn is a connection between two sides that send each other requests and
// notifications. Any goroutine may use it.
//
// A message is decoded once, and params and results are encoded once:
// [json.RawMessage] is sent as it is. github.com/sourcegraph/jsonrpc2 decodes and encodes
// a message several times with encoding/json, whichever codec it has: with it, a change of
// 5 MB took more than twice as long to reach the editor.
type Conn struct {
	stream Stream
	handle HandlerFunc
	ended  chan struct{}
	read   chan struct{} // closed when the handler is called no more
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	calls   uint64
	pending map[ID]*Call
}

// A Stream carries the messages of a [Conn].
type Stream interface {
	// ReadMessage returns the next message. An error ends the connection.
	ReadMessage() (Message, error)
	// WriteMessage writes the message that consists of head, body and a closing brace. Several
	// goroutines may call it.
	WriteMessage(head string, body json.RawMessage) error
	Close() error
}

// NewConn returns a connection that ends with ctx.
func NewConn(ctx context.Context, s Stream, handle HandlerFunc) *Conn {
	ctx, cancel := context.WithCancel(ctx)
	c := &Conn{stream: s, handle: handle, ended: make(chan struct{}), read: make(chan struct{}), cancel: cancel, pending: make(map[ID]*Call)}
	go c.receive()
	go func() {
		<-ctx.Done()
		c.Close()
	}()
	return c
}

func (c *Conn) receive() {
	defer close(c.read)
	defer c.Close()
	for {
		m, err := c.stream.ReadMessage()
		switch {
		case err != nil:
			return
		case m.Method != nil:
			c.handle(c, &Request{ID: ID(m.ID), Method: *m.Method, Params: m.Params, Notif: m.ID == nil})
		default:
			c.mu.Lock()
			call := c.pending[ID(m.ID)]
			delete(c.pending, ID(m.ID))
			c.mu.Unlock()
			if call != nil {
				call.answer <- m
			}
		}
	}
}

// Close ends the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	close(c.ended) // before the calls fail
	for _, call := range c.pending {
		close(call.answer)
	}
	clear(c.pending)
	c.mu.Unlock()
	c.cancel()
	return c.stream.Close()
}

// DisconnectNotify returns a channel that is closed when the connection has ended.
func (c *Conn) DisconnectNotify() <-chan struct{} { return c.ended }

// Wait waits until the connection has ended and its handler has returned.
func (c *Conn) Wait() { <-c.read }

// A Call is a request that waits for its answer.
type Call struct{ answer chan Message }

// Wait waits for the answer and decodes the result, unless it is nil.
func (call *Call) Wait(ctx context.Context, result any) error {
	select {
	case m, ok := <-call.answer:
		switch {
		case !ok:
			return ErrClosed
		case m.Error != nil:
			return m.Error
		case result == nil:
			return nil
		}
		return Decode(m.Result, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Call calls a method and waits for the answer. Params and result may be nil. It ends with the
// context, with its [context.Cause], even if the other side does not read.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	type started struct {
		call *Call
		err  error
	}
	sent := make(chan started, 1)
	go func() {
		call, err := c.Start(method, params)
		sent <- started{call, err}
	}()
	select {
	case s := <-sent:
		if s.err != nil {
			return s.err
		}
		return s.call.Wait(ctx, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Start sends a request, and returns when it is written. Params may be nil.
func (c *Conn) Start(method string, params any) (*Call, error) {
	call := &Call{answer: make(chan Message, 1)}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	c.calls++
	id := ID(strconv.FormatUint(firstID+c.calls, 10))
	c.pending[id] = call
	c.mu.Unlock()
	err := c.send(`"id":`+string(id)+`,"method":`+quoted(method), "params", params)
	if err != nil {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}
	return call, err
}

// firstID is above the IDs that the other side uses: Vim accepts only numbers, and takes
// a request for an answer if it has sent a request with the same number.
const firstID = 1_000_000_000

// Notify sends a notification. Params may be nil.
func (c *Conn) Notify(method string, params any) error {
	return c.send(`"method":`+quoted(method), "params", params)
}

// Reply answers a request.
func (c *Conn) Reply(id ID, result any) error {
	if result == nil {
		result = json.RawMessage("null")
	}
	return c.send(`"id":`+string(id), "result", result)
}

// send sends a message with these first members and one more, unless that is nil.
func (c *Conn) send(members, name string, value any) error {
	head := `{"jsonrpc":"2.0",` + members
	var body json.RawMessage
	if value != nil {
		var err error
		if body, err = Encode(value); err != nil {
			return err
		}
		head += `,"` + name + `":`
	}
	if c.over() {
		return ErrClosed
	}
	err := c.stream.WriteMessage(head, body)
	if err != nil && c.over() {
		return ErrClosed
	}
	return err
}

func (c *Conn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func quoted(s string) string {
	data, _ := jsontext.AppendQuote(nil, s) // replaces invalid UTF-8
	return string(data)
}
