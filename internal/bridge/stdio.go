package bridge

import (
	"bufio"
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
)

// maxMessage bounds a message in bytes.
const maxMessage = 32 << 20

// Stdio is the transport of one client, on a pair of pipes. It is the SDK's
// and what that lacks:
//
//   - A line that is no message is answered with an error and is not the end.
//   - A request that was cancelled gets no answer: the client has forgotten it,
//     and some clients take one for an error.
//   - The end of the input is held back until each request is answered, since
//     the SDK drops the answers that are due then. atEnd is called at once, to
//     hurry them up. Once answerTimeout has passed since the end of the input, what
//     cannot be written is dropped.
func Stdio(in io.Reader, out io.Writer, atEnd func()) mcp.Transport {
	w := newWriter(out)
	m := &messages{in: bufio.NewReader(in), complaints: make(chan string, 64), complained: make(chan struct{})}
	m.atEnd = func() {
		time.AfterFunc(answerTimeout, w.giveUp)
		atEnd()
	}
	go func() {
		defer close(m.complained)
		for c := range m.complaints {
			io.WriteString(w, c)
		}
	}()
	return stdio{&mcp.IOTransport{Reader: m, Writer: w, MaxLineLength: -1}}
}

// A writer keeps messages apart that several goroutines write, each by one call of
// Write. A client that does not read blocks them, until giveUp is called.
type writer struct {
	w     io.Writer
	turn  chan struct{} // holds one when nothing is being written
	gone  chan struct{} // closed by giveUp
	leave sync.Once
}

func newWriter(out io.Writer) *writer {
	w := &writer{w: out, turn: make(chan struct{}, 1), gone: make(chan struct{})}
	w.turn <- struct{}{}
	return w
}

// errDeaf is the error of messages that the client did not take.
var errDeaf = fmt.Errorf("the client has closed the input of the bridge and does not read its output: %w", io.EOF)

// giveUp fails all writes, those that are under way too.
func (w *writer) giveUp() { w.leave.Do(func() { close(w.gone) }) }

func (w *writer) Write(b []byte) (int, error) {
	select {
	case <-w.gone:
		return 0, errDeaf
	case <-w.turn:
	}
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	b = bytes.Clone(b) // it may be written after Write has returned
	go func() {
		n, err := w.w.Write(b)
		w.turn <- struct{}{}
		done <- written{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-w.gone:
		return 0, errDeaf
	}
}

func (*writer) Close() error { return nil }

// messages reads the lines of the input that are messages.
type messages struct {
	in    *bufio.Reader
	atEnd func()
	rest  []byte
	err   error

	// complaints are the answers to other lines. They are not written by the
	// goroutine that reads, which would then wait for a client that writes
	// before it reads; beyond some, they are dropped.
	complaints chan string
	complained chan struct{} // closed when all are written
	end        sync.Once
}

// finish is called when there is nothing more to read.
func (m *messages) finish() {
	m.atEnd()
	close(m.complaints)
	select {
	case <-m.complained:
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
		var line []byte
		var long bool
		line, long, m.err = m.line()
		if len(bytes.TrimSpace(line)) == 0 && !long {
			continue
		}
		if code, problem := check(line, long); problem != "" {
			select {
			case m.complaints <- fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, problem):
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

// line reads a line; of one that is too long, the start.
func (m *messages) line() (line []byte, long bool, err error) {
	for {
		part, err := m.in.ReadSlice('\n')
		if len(line)+len(part) <= maxMessage {
			line = append(line, part...)
		} else {
			long = true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// unroll makes a line of each message of a batch, which only one revision of
// the protocol knows; each is answered by itself.
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

// check says what is wrong with a line, and the error code for it.
func check(line []byte, long bool) (code int, problem string) {
	switch {
	case long:
		return jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is over %d bytes: send less", maxMessage)
	case !json.Valid(line) || !utf8.Valid(line):
		return jsonrpc.CodeParseError, "a line is not JSON: send one message a line"
	}
	var all []json.RawMessage
	if json.Unmarshal(line, &all) != nil {
		all = []json.RawMessage{line}
	}
	if len(all) == 0 {
		return jsonrpc.CodeInvalidRequest, "a batch is empty: send one message a line"
	}
	for _, one := range all {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		_, err := jsonrpc.DecodeMessage(one)
		if err != nil || json.Unmarshal(one, &m) != nil || len(m.ID) > 0 && m.ID[0] != '"' && bytes.ContainsAny(m.ID, ".eE") && string(m.ID) != "null" {
			return jsonrpc.CodeInvalidRequest, "a line is not a JSON-RPC 2.0 message: see the protocol"
		}
	}
	return 0, ""
}

type stdio struct{ mcp.Transport }

// Connect implements [mcp.Transport].
func (t stdio) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cancelConn{Connection: c, requests: make(map[jsonrpc.ID]bool), answered: make(chan struct{}, 1)}, nil
}

// A cancelConn knows which requests are not yet answered.
type cancelConn struct {
	mcp.Connection

	mu       sync.Mutex
	requests map[jsonrpc.ID]bool // not yet answered: is it cancelled
	answered chan struct{}       // holds one when there may be fewer
}

// answerTimeout bounds the wait for the last answers.
const answerTimeout = 10 * time.Second

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
