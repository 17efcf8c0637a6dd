package bridge

import (
	"context"
	"encoding/json"
	"slices"

	"pollux/internal/mcp"
)

// ahead returns the handler of a tool. If the first call of a client asks nothing yet, such
// as ping, the agent starts for the client's directory while that call is answered: a
// question is likely to follow. tools/list does not mean use: clients send it when
// they start.
func (s *Server) ahead(t tool) handler {
	asks := t.Name == startJob || slices.Contains(jobTools, t.Name) // for the call's own directory
	return func(ctx context.Context, c *mcp.Call) (*mcp.Result, error) {
		if asks {
			s.called.Store(true)
		} else if !s.called.Load() {
			if err := s.startAhead(ctx, c); err != nil {
				return nil, err
			}
		}
		return t.Run(ctx, c)
	}
}

// received is called for each message. It starts an agent at the first one after the client
// has said who it is: the client decides which agent is asked.
func (s *Server) received(method string, _ json.RawMessage) {
	if method == "notifications/roots/list_changed" {
		s.roots.forget()
	}
	if name := s.client(); name != "" && s.b.cfg.AheadDir != "" {
		s.known.Do(func() { s.b.startAhead(s.b.cfg.AheadDir, name) })
	}
}

// startAhead starts the agent for the client's root, once. It does not wait. The error is
// [mcp.ErrInput].
func (s *Server) startAhead(ctx context.Context, c *mcp.Call) error {
	root := ""
	if c.Stateless() {
		var err error
		if root, err = s.roots.first(ctx, c); err != nil {
			return err
		}
	}
	if s.called.Swap(true) || s.b.enter() != nil {
		return nil
	}
	go func() {
		defer s.b.work.Done()
		if !c.Stateless() {
			root, _ = s.roots.first(s.b.life, c)
		}
		if dir, err := workingDirectory(root); err == nil {
			s.b.startAhead(dir, s.client())
		}
	}()
	return nil
}
