package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coder/websocket"

	"pollux/internal/jsonl"
	"pollux/internal/jsonrpc"
)

// A Conn carries whole messages, as frames of a stream.
type Conn interface {
	// Read returns the next frame, which belongs to the caller.
	Read(ctx context.Context) ([]byte, error)
	// Write writes a frame. One goroutine at a time calls it.
	Write(ctx context.Context, frame []byte) error
	// Close ends the Read and the Write under way.
	Close() error
}

// WebSocket returns a connection on which a message is a text frame.
func WebSocket(ws *websocket.Conn) Conn {
	ws.SetReadLimit(MaxMessage)
	return webSocket{ws}
}

type webSocket struct{ *websocket.Conn }

func (c webSocket) Read(ctx context.Context) ([]byte, error) {
	_, data, err := c.Conn.Read(ctx)
	return data, err
}

func (c webSocket) Write(ctx context.Context, frame []byte) error {
	return c.Conn.Write(ctx, websocket.MessageText, frame)
}

func (c webSocket) Close() error { return c.CloseNow() }

// Lines returns a connection on which a message is a line of at most limit bytes.
func Lines(conn io.ReadWriteCloser, limit int) Conn {
	return lines{conn, jsonl.NewReader(conn, limit), jsonl.NewWriter(conn)}
}

type lines struct {
	io.Closer
	r *jsonl.Reader
	w *jsonl.Writer
}

func (c lines) Read(context.Context) ([]byte, error) { return c.r.ReadLine() }

func (c lines) Write(_ context.Context, frame []byte) error { return c.w.WriteLine(frame) }

// Serve serves the agent until the connection or the session ends. It closes the connection.
func (s *Session) Serve(conn Conn) {
	s.start(func(ctx context.Context, o *outgoing) error {
		if data := o.encode(0); data != nil {
			return conn.Write(ctx, data)
		}
		return nil
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-s.Ctx.Done()
		conn.Close()
	}()
	s.read(conn)
	if s.dialect.InputEnded != nil {
		s.dialect.InputEnded()
	}
	ctx, cancel := context.WithTimeout(s.Ctx, cmp.Or(s.server.cfg.Grace, closeTimeout))
	s.flush(ctx) // the agent may still read
	cancel()
	s.End()
	<-closed
	s.wait()
}

// read handles the messages on a connection until that ends.
func (s *Session) read(conn Conn) {
	for {
		data, err := conn.Read(s.Ctx)
		var long *jsonl.TooLongError
		switch {
		case errors.As(err, &long):
			s.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is longer than %d bytes: send less", long.Limit))
		case err != nil:
			return
		case len(bytes.TrimSpace(data)) > 0:
			s.readFrame(data)
		}
	}
}

// readFrame handles a frame: a message, or a batch of them, which one version of MCP has. It
// answers what is not a message. It skips a request whose ID is in use: the agent would take an
// answer for that of the other one.
func (s *Session) readFrame(data []byte) {
	batch := []json.RawMessage{data}
	if bytes.TrimSpace(data)[0] == '[' {
		var all []json.RawMessage
		if jsonrpc.Decode(data, &all) == nil {
			batch = all
		}
	}
	if len(batch) == 0 {
		s.refuse(jsonrpc.CodeInvalidRequest, "a batch is empty: send one message per line")
	}
	for _, one := range batch {
		m, err := parse(one)
		switch {
		case err == nil:
			s.receive(m, s.toOutbox)
		case !json.Valid(one):
			s.refuse(jsonrpc.CodeParseError, "a line is not JSON: send one message per line")
		default:
			s.server.cfg.Log.Debug("what an agent sends is not a message", "err", err)
			s.refuse(jsonrpc.CodeInvalidRequest, "a line is not a JSON-RPC 2.0 message: see the specification of MCP")
		}
	}
}

// refuse answers what is not a message.
func (s *Session) refuse(code int64, text string) {
	s.send(&outgoing{message: failure(nil, code, text), answer: true}, s.toOutbox)
}
