package companion

import (
	"errors"
	"sync"
	"time"
)

// errNoAnswer reports a disk that did not answer in time.
var errNoAnswer = errors.New("its file system does not answer")

// diskTimeout bounds one access to a file that a request needs.
const diskTimeout = 5 * time.Second

// within returns the results of f, or errNoAnswer after d. Then f continues in
// the background, since a system call on a hung mount cannot be interrupted.
func within[T any](d time.Duration, f func() (T, error)) (T, error) {
	return withinOr(d, f, func(T, error) {})
}

// withinOr is [within], and late receives the results that f returns after d.
func withinOr[T any](d time.Duration, f func() (T, error), late func(T, error)) (value T, err error) {
	type result struct {
		value T
		err   error
	}
	answered, gaveUp := make(chan result), make(chan struct{})
	go func() {
		v, err := f()
		select {
		case answered <- result{v, err}:
		case <-gaveUp:
			late(v, err)
		}
	}()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case r := <-answered:
		return r.value, r.err
	case <-timeout.C:
		close(gaveUp)
		return value, errNoAnswer
	}
}

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

	start := time.Now()
	answer, err := withinOr(max(time.Duration(*left), probeMinTimeout),
		func() (T, error) { return p.ask(path), nil },
		func(answer T, _ error) {
			p.mu.Lock()
			delete(p.asking, path)
			p.answered[path] = answer
			p.mu.Unlock()
			if p.late != nil {
				p.late(path)
			}
		})
	if err != nil {
		*left -= budget(time.Since(start))
		return answer, false
	}
	p.mu.Lock()
	delete(p.asking, path)
	p.mu.Unlock()
	return answer, true
}
