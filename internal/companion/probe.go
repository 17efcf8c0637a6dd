package companion

import (
	"sync"
	"time"
)

// A prober asks the file system about paths without waiting long for any of
// them, since a hung mount answers late or never. It asks only one question at a
// time for a path.
type prober[T any] struct {
	ask func(path string) T
	// late is called on another goroutine after an answer that came too late for
	// get; the next get returns that answer. It may be nil.
	late func(path string)

	mu       sync.Mutex
	asking   map[string]bool
	answered map[string]T // too late
}

const (
	// probeTimeout bounds the total wait for paths that do not answer.
	probeTimeout = 250 * time.Millisecond
	// probeMinTimeout is the wait for each path after probeTimeout is used up.
	probeMinTimeout = 5 * time.Millisecond
)

// A budget is the rest of probeTimeout.
type budget time.Duration

func newBudget() *budget {
	p := budget(probeTimeout)
	return &p
}

// get returns the answer for a path; ok is false without an answer in time.
func (p *prober[T]) get(path string, left *budget) (answer T, ok bool) {
	p.mu.Lock()
	answer, ok = p.answered[path]
	if ok || p.asking[path] {
		delete(p.answered, path)
		p.mu.Unlock()
		return answer, ok
	}
	if p.asking == nil {
		p.asking, p.answered = make(map[string]bool), make(map[string]T)
	}
	p.asking[path] = true
	p.mu.Unlock()

	answered := make(chan T)
	gaveUp := make(chan struct{})
	go func() {
		v := p.ask(path)
		select {
		case answered <- v:
		case <-gaveUp:
			p.mu.Lock()
			delete(p.asking, path)
			p.answered[path] = v
			p.mu.Unlock()
			if p.late != nil {
				p.late(path)
			}
		}
	}()
	start := time.Now()
	timeout := time.NewTimer(max(time.Duration(*left), probeMinTimeout))
	defer timeout.Stop()
	select {
	case answer = <-answered:
		p.mu.Lock()
		delete(p.asking, path)
		p.mu.Unlock()
		return answer, true
	case <-timeout.C:
		*left -= budget(time.Since(start))
		close(gaveUp)
		return answer, false
	}
}
