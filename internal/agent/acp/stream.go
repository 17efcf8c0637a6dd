package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/jsonl"
)

// maxLine limits a message from the agent, in bytes.
const maxLine = 64 << 20

// A stream reads and writes one message per line. It skips lines that are not
// messages.
type stream struct {
	*jsonl.Reader
	*jsonl.Writer
	r, w io.Closer
}

func newStream(r io.ReadCloser, w io.WriteCloser) *stream {
	return &stream{jsonl.NewReader(r, maxLine), jsonl.NewWriter(w), r, w}
}

// ReadObject implements [jsonrpc2.ObjectStream].
func (s *stream) ReadObject(v any) error {
	for {
		line, err := s.ReadLine()
		if isMessage(line) {
			return json.Unmarshal(line, v)
		}
		if err != nil {
			return err
		}
	}
}

// isMessage distinguishes messages from other output of the agent, its hooks and
// its libraries. That output may be JSON too.
func isMessage(line []byte) bool {
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return false
	}
	var m struct {
		JSONRPC string          `json:"jsonrpc"`
		Method  *string         `json:"method"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(line, &m) != nil || m.JSONRPC != "2.0" {
		return false
	}
	return m.Method != nil || len(m.ID) > 0 && (len(m.Result) > 0 || len(m.Error) > 0)
}

// WriteObject implements [jsonrpc2.ObjectStream].
func (s *stream) WriteObject(v any) error { return s.Encode(v) }

// Close implements [jsonrpc2.ObjectStream].
func (s *stream) Close() error { return errors.Join(s.w.Close(), s.r.Close()) }

// A handler answers the agent's requests and takes its notifications, in order.
type handler func(method string, params json.RawMessage) (any, error)

// Handle implements [jsonrpc2.Handler]. A separate goroutine writes the
// response: the agent does not read while it writes, so the reader must not wait
// for a write.
func (h handler) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	var params json.RawMessage
	if req.Params != nil {
		params = *req.Params
	}
	result, err := h(req.Method, params)
	if req.Notif {
		return
	}
	go func() {
		if err == nil {
			conn.Reply(ctx, req.ID, result)
			return
		}
		var rpc *jsonrpc2.Error
		if !errors.As(err, &rpc) {
			rpc = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
		}
		conn.ReplyWithError(ctx, req.ID, rpc)
	}()
}
