package mcp

import (
	"context"
	"io"

	"github.com/coder/websocket"

	"pollux/internal/jsonl"
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

// Lines returns a connection on which a message is a line.
func Lines(conn io.ReadWriteCloser) Conn {
	return lines{conn, jsonl.NewReader(conn, MaxMessage), jsonl.NewWriter(conn)}
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
	ctx, cancel := context.WithTimeout(s.Ctx, closeTimeout)
	s.flush(ctx) // the agent may still read
	cancel()
	s.End()
	<-closed
	s.wait()
}

// read handles the messages on a connection until that ends. It skips what is not a message, and a
// request whose ID is in use: the agent would take an answer for that of the other one.
func (s *Session) read(conn Conn) {
	for {
		data, err := conn.Read(s.Ctx)
		if err != nil {
			return
		}
		m, err := parse(data)
		if err != nil {
			s.server.cfg.Log.Debug("a frame is not a message", "err", err)
			continue
		}
		s.receive(m, s.toOutbox)
	}
}
