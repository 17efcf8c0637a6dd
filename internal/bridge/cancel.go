package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A cancelTransport keeps answers to cancelled requests from the client, which
// has forgotten them: the protocol wants none, and some clients take one for
// an error. And it holds the end of the input back until each request is
// answered, since the SDK drops the answers that are due then.
type cancelTransport struct{ mcp.Transport }

// Connect implements [mcp.Transport].
func (t cancelTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cancelConn{Connection: c, requests: make(map[jsonrpc.ID]bool), answered: make(chan struct{}, 1)}, nil
}

type cancelConn struct {
	mcp.Connection

	mu       sync.Mutex
	requests map[jsonrpc.ID]bool // not yet answered: is it cancelled
	answered chan struct{}       // holds one when there may be fewer
}

// answerTime bounds the wait for the last answers.
const answerTime = 10 * time.Second

func (c *cancelConn) drain(ctx context.Context) {
	limit := time.NewTimer(answerTime)
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
