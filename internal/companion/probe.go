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
type prober struct {
	ask func(path string) bool
	// late is called on another goroutine after an answer that came too late for
	// get; the next get returns that answer.
	late func()

	mu       sync.Mutex
	asking   map[string]bool
	answered map[string]bool // too late
}

func newProber(ask func(path string) bool, late func()) *prober {
	return &prober{ask: ask, late: late, asking: make(map[string]bool), answered: make(map[string]bool)}
}

const (
	// probeTimeout bounds the total wait for paths that do not answer.
	probeTimeout = 250 * time.Millisecond
	// probeMinTimeout is the wait for each path after probeTimeout is used up.
	probeMinTimeout = 5 * time.Millisecond
)

// get returns the answer for a path; ok is false without an answer in time. It takes the time that
// a path without an answer takes from left, which is probeTimeout at first.
func (p *prober) get(path string, left *time.Duration) (answer, ok bool) {
	p.mu.Lock()
	answer, ok = p.answered[path]
	delete(p.answered, path)
	asking := p.asking[path]
	if !ok {
		p.asking[path] = true
	}
	p.mu.Unlock()
	if ok || asking {
		return answer, ok
	}
	start := time.Now()
	answer, err := withinOr(max(*left, probeMinTimeout),
		func() (bool, error) { return p.ask(path), nil },
		func(answer bool, _ error) {
			p.mu.Lock()
			delete(p.asking, path)
			p.answered[path] = answer
			p.mu.Unlock()
			p.late()
		})
	if err != nil {
		*left -= time.Since(start)
		return answer, false
	}
	p.mu.Lock()
	delete(p.asking, path)
	p.mu.Unlock()
	return answer, true
}
