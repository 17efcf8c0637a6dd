package bridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/jsonl"
	"pollux/internal/outbox"
)

const (
	// maxMessage limits a message, in bytes.
	maxMessage = 32 << 20
	// answerTimeout limits the wait for the last answers.
	answerTimeout = 10 * time.Second
	// maxProblems limits the problems that wait to be reported. Further ones are dropped.
	maxProblems = 64
)

// Stdio returns the transport of one client on a pair of pipes. It does more than the SDK's:
//
//   - A line that is not a message is answered with an error, and the connection
//     continues.
//   - A cancelled request is not answered. The client has forgotten it, and some
//     clients report such an answer as an error.
//   - The SDK sees the end of the input only after each request has been answered,
//     because it then drops outstanding answers. atEnd is called at the end of the
//     input, to speed up the answers. Answers that cannot be written within
//     answerTimeout are dropped.
//   - All writes fail when ctx ends. Otherwise a client that does not read could
//     keep calls from ending.
func Stdio(ctx context.Context, in io.Reader, out io.Writer, atEnd func()) mcp.Transport {
	c := &stdio{
		in: jsonl.NewReader(in, maxMessage), messages: make(chan jsonrpc.Message), atEnd: atEnd,
		out: out, turn: make(chan struct{}, 1),
		requests: make(map[jsonrpc.ID]bool), answered: outbox.NewSignal(),
	}
	c.open, c.giveUp = context.WithCancel(ctx)
	c.turn <- struct{}{}
	return c
}

// A stdio is a transport and its connection.
type stdio struct {
	in       *jsonl.Reader
	messages chan jsonrpc.Message // closed at the end of the input
	inputErr error                // why it ended; set before that
	atEnd    func()

	out    io.Writer
	turn   chan struct{} // holds a token while nothing is being written
	open   context.Context
	giveUp context.CancelFunc // ends open: all writes fail, including those in progress

	mu       sync.Mutex
	requests map[jsonrpc.ID]bool // unanswered requests; true if cancelled
	problems int                 // problems that are being reported
	answered outbox.Signal       // there may be fewer of them
}

// Connect implements [mcp.Transport].
func (c *stdio) Connect(context.Context) (mcp.Connection, error) {
	go c.readAll()
	return c, nil
}

// SessionID implements [mcp.Connection].
func (*stdio) SessionID() string { return "" }

// Close implements [mcp.Connection].
func (c *stdio) Close() error {
	c.giveUp()
	return nil
}

// readAll reads the messages in the input and reports the problems of other lines.
func (c *stdio) readAll() {
	defer close(c.messages)
	for {
		line, err := c.in.ReadLine()
		var tooLong *jsonl.TooLongError
		long := errors.As(err, &tooLong)
		if err != nil && !long {
			c.inputErr = err
			time.AfterFunc(answerTimeout, c.giveUp)
			c.atEnd()
			return
		}
		if !long && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		all, code, problem := parse(line, long)
		if problem != "" {
			c.report(code, problem)
		}
		for _, m := range all {
			select {
			case c.messages <- m:
			case <-c.open.Done():
				return
			}
		}
	}
}

// parse returns the messages in a line, or its problem and the error code for it. A line is a
// message or a batch of them: one revision of the protocol supports batches.
func parse(line []byte, long bool) (all []jsonrpc.Message, code int, problem string) {
	switch {
	case long:
		return nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is longer than %d bytes: send less", maxMessage)
	case !json.Valid(line) || !utf8.Valid(line):
		return nil, jsonrpc.CodeParseError, "a line is not JSON: send one message per line"
	}
	var batch []json.RawMessage
	if json.Unmarshal(line, &batch) != nil {
		batch = []json.RawMessage{line}
	}
	if len(batch) == 0 {
		return nil, jsonrpc.CodeInvalidRequest, "a batch is empty: send one message per line"
	}
	for _, one := range batch {
		var fields struct {
			ID json.RawMessage `json:"id"`
		}
		m, err := jsonrpc.DecodeMessage(one)
		if err == nil {
			err = json.Unmarshal(one, &fields)
		}
		id := fields.ID
		if err != nil || len(id) > 0 && id[0] != '"' && bytes.ContainsAny(id, ".eE") && string(id) != "null" {
			return nil, jsonrpc.CodeInvalidRequest, "a line is not a JSON-RPC 2.0 message: see the specification of MCP"
		}
		all = append(all, m)
	}
	return all, 0, ""
}

// report answers a line that is not a message. It does not wait, because a client may write
// everything before it reads.
func (c *stdio) report(code int, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problems == maxProblems {
		return
	}
	c.problems++
	go func() {
		c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, problem))
		c.mu.Lock()
		c.problems--
		c.mu.Unlock()
		c.answered.Set()
	}()
}

// drain waits until everything has been answered.
func (c *stdio) drain(ctx context.Context) {
	for {
		c.mu.Lock()
		left := len(c.requests) + c.problems
		c.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-c.answered:
		case <-ctx.Done():
			return
		case <-c.open.Done():
			return
		}
	}
}

// Read implements [mcp.Connection].
func (c *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	var m jsonrpc.Message
	err := io.EOF
	select {
	case m = <-c.messages:
		if m == nil {
			err = cmp.Or(c.inputErr, err)
		}
	case <-ctx.Done():
	case <-c.open.Done():
	}
	if m == nil {
		c.drain(ctx)
		return nil, err
	}
	r, ok := m.(*jsonrpc.Request)
	if !ok {
		return m, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.IsCall() {
		c.requests[r.ID] = false
	} else if r.Method == "notifications/cancelled" {
		var p struct {
			RequestID any `json:"requestId"`
		}
		if json.Unmarshal(r.Params, &p) == nil {
			if id, err := jsonrpc.MakeID(p.RequestID); err == nil {
				if _, open := c.requests[id]; open {
					c.requests[id] = true
				}
			}
		}
	}
	return m, nil
}

// Write implements [mcp.Connection].
func (c *stdio) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Response); ok {
		c.mu.Lock()
		cancelled := c.requests[r.ID]
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			delete(c.requests, r.ID)
			c.mu.Unlock()
			c.answered.Set()
		}()
		if cancelled {
			return nil
		}
	}
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.write(data)
}

// errNotRead reports messages that the client did not read.
var errNotRead = fmt.Errorf("the client does not read the output of the bridge: %w", io.EOF)

// write writes a line. A client that does not read blocks it until open ends. Several
// goroutines may use it.
func (c *stdio) write(line []byte) error {
	select {
	case <-c.open.Done():
		return errNotRead
	case <-c.turn:
	}
	done := make(chan error, 1)
	go func() { // the write may outlive this call
		_, err := c.out.Write(append(line, '\n'))
		c.turn <- struct{}{}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-c.open.Done():
		return errNotRead
	}
}
