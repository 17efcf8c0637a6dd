package bridge

import (
	"context"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ahead returns the handler of a tool. If the first call of a client asks nothing yet, such
// as ping, the agent starts for the client's directory while that call is answered: a
// question is likely to follow. tools/list does not mean use: clients send it when
// they start.
func (s *Server) ahead(t tool) mcp.ToolHandler {
	asks := t.tool.Name == startJob || slices.Contains(jobTools, t.tool.Name) // for the call's own directory
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if asks {
			s.called.Store(true)
		} else if !s.called.Load() {
			if r := s.startAhead(ctx, req); r != nil {
				return r, nil
			}
		}
		return t.handle(ctx, req)
	}
}

// aheadOfCalls starts an agent when the client sends the first message that says who it is:
// the client decides which agent is asked.
func (s *Server) aheadOfCalls(next mcp.MethodHandler) mcp.MethodHandler {
	var once sync.Once
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if name := clientName(req.GetSession()); name != "" {
			once.Do(func() { s.b.startAhead(s.b.cfg.AheadDir, name) })
		}
		return next(ctx, method, req)
	}
}

// startAhead starts the agent for the client's root, once. It does not wait. If it returns
// a result, that is the answer to the call: a request for the client's roots.
func (s *Server) startAhead(ctx context.Context, req *mcp.CallToolRequest) *mcp.CallToolResult {
	if rootsAreInput(req) {
		if _, result := s.roots.first(ctx, req); result != nil {
			return result
		}
	}
	if s.called.Swap(true) || s.b.enter() != nil {
		return nil
	}
	go func() {
		defer s.b.work.Done()
		root, _ := s.roots.first(s.b.life, req)
		if dir, err := workingDirectory(root); err == nil {
			s.b.startAhead(dir, client(req))
		}
	}()
	return nil
}
