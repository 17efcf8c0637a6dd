package claudeide

import (
	"context"
	"io"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"pollux/internal/ide/blocking"
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
		msg, err := blocking.Decode(data)
		if err != nil {
			c.s.server.cfg.Log.Debug("a frame is not a message", "err", err)
			continue
		}
		req, ok := msg.(*jsonrpc.Request)
		switch {
		case !ok:
			return msg, nil
		case req.Method == "ide_connected" && !req.IsCall():
			c.s.claim(req.Params)
			continue
		case req.Method == "tools/list":
			c.s.Feed.Refresh()
		}
		return c.s.Calls.Received(req), nil
	}
}

// Write implements [mcp.Connection].
func (c conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		c.s.End()
	} else {
		err = c.Send(ctx, data)
	}
	if res, ok := msg.(*jsonrpc.Response); ok {
		c.s.Calls.Written(res.ID, err)
	}
	return err
}

// Send implements [blocking.Conn]. It writes nothing for a session that ends: an error
// that only says so would hide the change from the agent's user.
func (c conn) Send(ctx context.Context, message []byte) error {
	err := c.s.Ctx.Err()
	if err == nil {
		err = c.s.ws.Write(ctx, websocket.MessageText, message)
	}
	if err != nil { // as in Read
		c.s.End()
	}
	return err
}
