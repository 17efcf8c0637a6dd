package companion

import "sync"

// A group waits for goroutines. Unlike with a [sync.WaitGroup], they may start
// others during Wait.
type group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil if nobody waits
}

// start runs f on a new goroutine.
func (g *group) start(f func()) {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	go func() {
		defer g.end()
		f()
	}()
}

func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// wait returns when no goroutine is left.
func (g *group) wait() {
	for {
		g.mu.Lock()
		if g.n == 0 {
			g.mu.Unlock()
			return
		}
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle := g.idle
		g.mu.Unlock()
		<-idle
	}
}
