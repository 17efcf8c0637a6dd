package bridge

import (
	"bytes"
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
)

// maxMessage limits a message, in bytes.
const maxMessage = 32 << 20

// Stdio returns the transport of one client on a pair of pipes. It extends the
// SDK's transport:
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
	w := newWriter(ctx, out)
	m := &messages{in: jsonl.NewReader(in, maxMessage), replies: make(chan string, 64), replied: make(chan struct{})}
	m.atEnd = func() {
		time.AfterFunc(answerTimeout, w.giveUp)
		atEnd()
	}
	go func() {
		defer close(m.replied)
		for line := range m.replies {
			io.WriteString(w, line)
		}
	}()
	return stdio{&mcp.IOTransport{Reader: m, Writer: w, MaxLineLength: -1}}
}

// A writer writes one message per call of Write. A client that does not read
// blocks it until open ends. Several goroutines may use it.
type writer struct {
	w      io.Writer
	turn   chan struct{} // holds a token while nothing is being written
	open   context.Context
	giveUp context.CancelFunc // ends open: all writes fail, including those in progress
}

func newWriter(ctx context.Context, out io.Writer) *writer {
	w := &writer{w: out, turn: make(chan struct{}, 1)}
	w.open, w.giveUp = context.WithCancel(ctx)
	w.turn <- struct{}{}
	return w
}

// errNotRead reports messages that the client did not read.
var errNotRead = fmt.Errorf("the client does not read the output of the bridge: %w", io.EOF)

func (w *writer) Write(b []byte) (int, error) {
	select {
	case <-w.open.Done():
		return 0, errNotRead
	case <-w.turn:
	}
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	b = bytes.Clone(b) // the write may outlive this call
	go func() {
		n, err := w.w.Write(b)
		w.turn <- struct{}{}
		done <- written{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-w.open.Done():
		return 0, errNotRead
	}
}

func (*writer) Close() error { return nil }

// A messages reads the messages in the input and answers other lines.
type messages struct {
	in    *jsonl.Reader
	atEnd func()
	rest  []byte // the rest of the current message
	err   error

	// replies are the answers to lines that are not messages. A separate
	// goroutine writes them, because a client may write everything before it
	// reads. When the channel is full, further replies are dropped.
	replies chan string
	replied chan struct{} // closed when all replies are written
	end     sync.Once
}

// finish handles the end of the input.
func (m *messages) finish() {
	m.atEnd()
	close(m.replies)
	select {
	case <-m.replied:
	case <-time.After(time.Second):
	}
}

func (m *messages) Close() error { return nil }

func (m *messages) Read(b []byte) (int, error) {
	for len(m.rest) == 0 {
		if m.err != nil {
			m.end.Do(m.finish)
			return 0, m.err
		}
		line, err := m.in.ReadLine()
		var tooLong *jsonl.TooLongError
		long := errors.As(err, &tooLong)
		if !long {
			m.err = err
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
		}
		if code, problem := check(line, long); problem != "" {
			select {
			case m.replies <- fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, problem):
			default:
			}
			continue
		}
		m.rest = unroll(line)
	}
	n := copy(b, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// unroll returns the messages of a batch, one per line, so that each is answered
// separately. Only one revision of the protocol supports batches.
func unroll(line []byte) []byte {
	var batch []json.RawMessage
	if json.Unmarshal(line, &batch) != nil {
		batch = []json.RawMessage{line}
	}
	var out []byte
	for _, m := range batch {
		out = append(append(out, bytes.TrimSpace(m)...), '\n')
	}
	return out
}

// check returns the problem of a line and the error code for it.
func check(line []byte, long bool) (code int, problem string) {
	switch {
	case long:
		return jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is longer than %d bytes: send less", maxMessage)
	case !json.Valid(line) || !utf8.Valid(line):
		return jsonrpc.CodeParseError, "a line is not JSON: send one message per line"
	}
	var all []json.RawMessage
	if json.Unmarshal(line, &all) != nil {
		all = []json.RawMessage{line}
	}
	if len(all) == 0 {
		return jsonrpc.CodeInvalidRequest, "a batch is empty: send one message per line"
	}
	for _, one := range all {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		_, err := jsonrpc.DecodeMessage(one)
		if err != nil || json.Unmarshal(one, &m) != nil || len(m.ID) > 0 && m.ID[0] != '"' && bytes.ContainsAny(m.ID, ".eE") && string(m.ID) != "null" {
			return jsonrpc.CodeInvalidRequest, "a line is not a JSON-RPC 2.0 message: see the specification of MCP"
		}
	}
	return 0, ""
}

// A stdio is a transport that handles cancelled requests.
type stdio struct{ mcp.Transport }

// Connect implements [mcp.Transport].
func (t stdio) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cancelConn{Connection: c, requests: make(map[jsonrpc.ID]bool), answered: make(chan struct{}, 1)}, nil
}

// A cancelConn keeps track of the requests that have not been answered.
type cancelConn struct {
	mcp.Connection

	mu       sync.Mutex
	requests map[jsonrpc.ID]bool // unanswered requests; true if cancelled
	answered chan struct{}       // holds a token when there may be fewer
}

// answerTimeout limits the wait for the last answers.
const answerTimeout = 10 * time.Second

// drain waits until all requests have been answered.
func (c *cancelConn) drain(ctx context.Context) {
	limit := time.NewTimer(answerTimeout)
	defer limit.Stop()
	for {
		c.mu.Lock()
		open := len(c.requests)
		c.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-c.answered:
		case <-ctx.Done():
			return
		case <-limit.C:
			return
		}
	}
}

// Read implements [mcp.Connection].
func (c *cancelConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		c.drain(ctx)
	}
	r, ok := m.(*jsonrpc.Request)
	if err != nil || !ok {
		return m, err
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
func (c *cancelConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Response); ok {
		c.mu.Lock()
		cancelled := c.requests[r.ID]
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			delete(c.requests, r.ID)
			c.mu.Unlock()
			select {
			case c.answered <- struct{}{}:
			default:
			}
		}()
		if cancelled {
			return nil
		}
	}
	return c.Connection.Write(ctx, m)
}
