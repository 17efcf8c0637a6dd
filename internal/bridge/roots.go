package bridge

//lint:file-ignore SA1019 the protocol has deprecated roots and given clients nothing in their place

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/paths"
)

// multiRoundTrip is the first revision of the protocol in which a server does
// not send requests to its client. Instead the result of a call asks for input,
// and the client repeats the call with it.
const multiRoundTrip = "2026-07-28"

const rootsRequest = "roots"

// rootsTimeout limits a request for the client's roots.
const rootsTimeout = 2 * time.Second

// A roots determines the client's root: the directory for calls that name none.
type roots struct {
	mu    sync.Mutex
	root  string
	known bool
	turn  int // counts how often the client has changed its roots
}

// watch forgets the root when the client changes its roots.
func (r *roots) watch(o *mcp.ServerOptions) {
	o.RootsListChangedHandler = func(context.Context, *mcp.RootsListChangedRequest) {
		r.mu.Lock()
		r.known = false
		r.turn++
		r.mu.Unlock()
	}
}

// first returns the client's first root that is a directory on this machine, or
// "". If it returns a result, that is the answer to the call: a request for the
// client's roots.
func (r *roots) first(ctx context.Context, req *mcp.CallToolRequest) (string, *mcp.CallToolResult) {
	init := req.Session.InitializeParams()
	if init == nil || init.Capabilities == nil || init.Capabilities.RootsV2 == nil {
		return "", nil
	}
	if rootsAreInput(req) {
		response, ok := req.Params.InputResponses[rootsRequest]
		if !ok {
			return "", &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{rootsRequest: &mcp.ListRootsParams{}}}
		}
		list, _ := response.(*mcp.ListRootsResult)
		return firstRoot(list), nil
	}
	r.mu.Lock()
	root, known, turn := r.root, r.known, r.turn
	r.mu.Unlock()
	if known {
		return root, nil
	}
	asking, cancel := context.WithTimeout(ctx, rootsTimeout)
	defer cancel()
	list, _ := req.Session.ListRoots(asking, nil)
	root = firstRoot(list)
	// Also remember a client that does not answer, or each call would wait.
	r.mu.Lock()
	if ctx.Err() == nil && r.turn == turn {
		r.root, r.known = root, true
	}
	r.mu.Unlock()
	return root, nil
}

// rootsAreInput reports whether a client that has roots sends them as input of a call.
func rootsAreInput(req *mcp.CallToolRequest) bool {
	init := req.Session.InitializeParams()
	return init != nil && init.ProtocolVersion >= multiRoundTrip
}

// firstRoot returns the first root that is a directory on this machine, or "".
func firstRoot(list *mcp.ListRootsResult) string {
	if list == nil {
		return ""
	}
	for _, root := range list.Roots {
		if dir, ok := paths.FromURL(root.URI); ok {
			if dir, err := workingDirectory(dir); err == nil {
				return dir
			}
		}
	}
	return ""
}
