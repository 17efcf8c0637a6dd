package bridge

import (
	"sync"

	"pollux/internal/agent"
)

// A load counts the bridge's calls that run and that wait for their turn.
type load struct {
	mu               sync.Mutex
	running, waiting int
}

// counts returns the number of running and of waiting calls.
func (l *load) counts() (running, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, l.waiting
}

// enter counts a call that waits. The caller must call leave.
func (l *load) enter() *loadEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	return &loadEntry{load: l}
}

// A loadEntry is one call. Only one goroutine uses it.
type loadEntry struct {
	load    *load
	running bool
}

// event notices that it is the call's turn.
func (e *loadEntry) event(ev agent.Event) {
	if _, queued := ev.(agent.Queued); queued || e.running {
		return
	}
	e.running = true
	e.load.mu.Lock()
	defer e.load.mu.Unlock()
	e.load.waiting--
	e.load.running++
}

func (e *loadEntry) leave() {
	e.load.mu.Lock()
	defer e.load.mu.Unlock()
	if e.running {
		e.load.running--
	} else {
		e.load.waiting--
	}
}
