package codex

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"pollux/internal/agent"
	"pollux/internal/jsonl"
)

// maxLine limits a message from the app server, in bytes.
const maxLine = 64 << 20

var errEnded = errors.New("the connection has ended")

// An rpc is a connection with the app server. It speaks JSON-RPC, one message per line, without
// the field "jsonrpc".
type rpc struct {
	in     *jsonl.Writer
	r, w   io.Closer
	notice func(method string, params json.RawMessage) // called by the reading goroutine
	done   chan struct{}                               // closed when reading has ended

	mu      sync.Mutex
	last    int64
	pending map[int64]chan message
}

// A message is a request, a notification or a response.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type request struct {
	ID     int64  `json:"id,omitempty"`
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

func newRPC(r io.ReadCloser, w io.WriteCloser, notice func(string, json.RawMessage)) *rpc {
	c := &rpc{in: jsonl.NewWriter(w), r: r, w: w, notice: notice, done: make(chan struct{}), pending: make(map[int64]chan message)}
	go c.read(jsonl.NewReader(r, maxLine))
	return c
}

func (c *rpc) read(lines *jsonl.Reader) {
	defer close(c.done)
	for {
		line, err := lines.ReadLine()
		if m, ok := parse(line); ok {
			c.take(m)
		}
		if err != nil {
			return
		}
	}
}

// parse reads a line. It reports false for other output of the agent and its libraries, which
// may be JSON too.
func parse(line []byte) (m message, ok bool) {
	if json.Unmarshal(line, &m) != nil {
		return m, false
	}
	return m, m.Method != "" || len(m.ID) > 0 && (len(m.Result) > 0 || m.Error != nil)
}

func (c *rpc) take(m message) {
	switch {
	case m.Method != "" && len(m.ID) > 0:
		// The server asks for a permission or for input. It does not read while it writes, so
		// the reader must not wait for a write.
		refusal := message{ID: m.ID, Error: &rpcError{Code: -32601, Message: "declined"}}
		go c.in.Encode(refusal)
	case m.Method != "":
		c.notice(m.Method, m.Params)
	default:
		var id int64
		if json.Unmarshal(m.ID, &id) != nil {
			return
		}
		c.mu.Lock()
		waiting := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if waiting != nil {
			waiting <- m
		}
	}
}

// send sends a request. The channel receives the response.
func (c *rpc) send(method string, params any) (<-chan message, error) {
	response := make(chan message, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.pending[id] = response
	c.mu.Unlock()
	return response, c.in.Encode(request{id, method, params})
}

// call sends a request and reads the response into result. It ends with the context even if
// the agent does not read.
func (c *rpc) call(ctx context.Context, method string, params, result any) error {
	type sent struct {
		response <-chan message
		err      error
	}
	sending := make(chan sent, 1)
	go func() {
		response, err := c.send(method, params)
		sending <- sent{response, err}
	}()
	var response <-chan message
	for {
		select {
		case s := <-sending:
			if s.err != nil {
				return s.err
			}
			response = s.response
		case m := <-response:
			return m.into(result)
		case <-c.done:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// into reads the result of a response, or returns its error.
func (m message) into(result any) error {
	if m.Error != nil {
		return &agent.Refused{Code: m.Error.Code, Message: m.Error.Message}
	}
	return json.Unmarshal(m.Result, result)
}

// Close ends the connection and waits for the end of reading.
func (c *rpc) Close() error {
	err := errors.Join(c.w.Close(), c.r.Close())
	<-c.done
	return err
}
