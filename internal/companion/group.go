package companion

import (
	"sync"

	"pollux/internal/crash"
)

// A group waits for goroutines, whose panics are reported. Unlike with a [sync.WaitGroup], they
// may start others during Wait.
type group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again
}

// start runs f on a new goroutine.
func (g *group) start(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n == 0 {
		g.idle = make(chan struct{})
	}
	g.n++
	go func() {
		defer g.end()
		defer crash.Report()
		f()
	}()
}

func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 {
		close(g.idle)
	}
}

// wait returns when no goroutine is left.
func (g *group) wait() {
	for {
		g.mu.Lock()
		n, idle := g.n, g.idle
		g.mu.Unlock()
		if n == 0 {
			return
		}
		<-idle
	}
}
