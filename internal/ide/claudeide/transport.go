package claudeide

import (
	"context"
	"io"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A conn is the connection of a session: a message is a text frame.
type conn struct{ s *Session }

// SessionID implements [mcp.Connection].
func (conn) SessionID() string { return "" }

// Close implements [mcp.Connection].
func (c conn) Close() error { return c.s.ws.CloseNow() }

// Read implements [mcp.Connection]. It keeps the notification ide_connected, which is
// not in MCP, from the SDK, and skips what is not a message. The session ends with the
// connection, before the SDK learns of it: the calls that wait for the user must not
// take that for a cancellation.
func (c conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		_, data, err := c.s.ws.Read(ctx)
		if err != nil {
			c.s.End()
			return nil, io.EOF
		}
		msg, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			c.s.server.cfg.Log.Debug("a frame is not a message", "err", err)
			continue
		}
		req, ok := msg.(*jsonrpc.Request)
		switch {
		case !ok:
			return msg, nil
		case req.Method == "ide_connected" && !req.IsCall():
			continue
		case req.Method == "tools/list":
			c.s.Feed.Refresh()
		}
		return c.s.Calls.Received(req), nil
	}
}

// Write implements [mcp.Connection]. It writes nothing for a session that ends: an
// error that only says so would hide the change from the agent's user.
func (c conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.s.Ctx.Err()
	if err == nil {
		err = c.write(ctx, msg)
	}
	if err != nil { // as in Read
		c.s.End()
	}
	if res, ok := msg.(*jsonrpc.Response); ok {
		c.s.Calls.Written(res.ID, err)
	}
	return err
}

func (c conn) write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return c.s.ws.Write(ctx, websocket.MessageText, data)
}
