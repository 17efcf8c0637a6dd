package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"pollux/internal/mcp"
	"pollux/internal/paths"
)

// rootsTimeout limits a request for the client's roots.
const rootsTimeout = 2 * time.Second

// A roots determines the client's root: the directory for calls that name none.
type roots struct {
	mu    sync.Mutex
	root  string
	known bool
	turn  int // counts how often the client has changed its roots
}

// forget forgets the root when the client changes its roots.
func (r *roots) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = false
	r.turn++
}

// first returns the client's first root that is a directory on this machine, or "". The error is
// [mcp.ErrInput].
func (r *roots) first(ctx context.Context, c *mcp.Call) (string, error) {
	if c.Stateless() {
		uris, err := c.Roots(ctx)
		if errors.Is(err, mcp.ErrInput) {
			return "", err
		}
		return firstRoot(uris), nil
	}
	r.mu.Lock()
	root, known, turn := r.root, r.known, r.turn
	r.mu.Unlock()
	if known {
		return root, nil
	}
	asking, cancel := context.WithTimeout(ctx, rootsTimeout)
	defer cancel()
	uris, _ := c.Roots(asking)
	root = firstRoot(uris)
	// Also remember a client that does not answer, or each call would wait.
	r.mu.Lock()
	if ctx.Err() == nil && r.turn == turn {
		r.root, r.known = root, true
	}
	r.mu.Unlock()
	return root, nil
}

// firstRoot returns the first root that is a directory on this machine, or "".
func firstRoot(uris []string) string {
	for _, uri := range uris {
		if dir, ok := paths.FromURL(uri); ok {
			if dir, err := workingDirectory(dir); err == nil {
				return dir
			}
		}
	}
	return ""
}
