package bridge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A queue limits how many calls run at once. The others wait, first come, first
// served.
//
// Only a [slot] counts as running. A call that leaves the queue without a slot,
// for whatever reason, does not use one.
type queue struct {
	max     int
	setting string // the environment variable that sets max

	mu      sync.Mutex
	running int
	waiting []*waiter
}

type waiter struct {
	granted chan struct{}
	moved   chan struct{} // holds a token when the position may have changed
}

// A slot is the right to run. It starts with one hold, and becomes free when
// every hold has been released.
type slot struct {
	q *queue

	mu   sync.Mutex
	held int
}

func (s *slot) hold() {
	s.mu.Lock()
	s.held++
	s.mu.Unlock()
}

func (s *slot) release() {
	s.mu.Lock()
	s.held--
	last := s.held == 0
	s.mu.Unlock()
	if last {
		s.q.give()
	}
}

// queueTimeout is how long a call waits for a slot. A job waits until its
// deadline.
const queueTimeout = 30 * time.Second

// acquire waits for a slot. It calls report with the position in the queue,
// counted from 1, whenever it changes.
func (q *queue) acquire(ctx context.Context, report func(position int)) (*slot, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	q.mu.Lock()
	if q.running < q.max && len(q.waiting) == 0 {
		q.running++
		q.mu.Unlock()
		return &slot{q: q, held: 1}, nil
	}
	w := &waiter{granted: make(chan struct{}), moved: make(chan struct{}, 1)}
	q.waiting = append(q.waiting, w)
	n := len(q.waiting)
	q.mu.Unlock()
	wait := queueTimeout
	if ctx.Value(jobKey{}) != nil {
		wait = MaxTimeout
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		report(n)
		var err error
		select {
		case <-w.granted:
			return &slot{q: q, held: 1}, nil
		case <-w.moved:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-limit.C:
			running, waiting := q.load()
			err = fmt.Errorf("no free slot within %s: %d calls are running and %d waiting; try again later, or "+
				"raise %s (now %d)",
				wait, running, waiting-1, q.setting, q.max)
		}
		q.mu.Lock()
		i := slices.Index(q.waiting, w)
		if i < 0 { // a slot was granted in the meantime
			q.mu.Unlock()
			if err != nil {
				q.give()
				return nil, err
			}
			continue
		}
		n = i + 1
		if err != nil {
			q.waiting = slices.Delete(q.waiting, i, i+1)
			q.movedLocked()
			q.mu.Unlock()
			return nil, err
		}
		q.mu.Unlock()
	}
}

// give passes a slot to the first waiting call.
func (q *queue) give() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running--
		return
	}
	close(q.waiting[0].granted)
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.movedLocked()
}

func (q *queue) movedLocked() {
	for _, w := range q.waiting {
		select {
		case w.moved <- struct{}{}:
		default:
		}
	}
}

// load returns the number of running and of waiting calls.
func (q *queue) load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, len(q.waiting)
}

// A pacer spaces out starts: between two of them there is at least the interval,
// plus a random time of up to jitter.
type pacer struct {
	interval, jitter time.Duration
	turn             chan struct{} // holds a token while nobody waits to start
	last             time.Time     // the last start; guarded by turn
}

func newPacer(interval, jitter time.Duration) *pacer {
	p := &pacer{interval: interval, jitter: jitter, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// wait waits until the caller may start.
func (p *pacer) wait(ctx context.Context) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.turn <- struct{}{} }()
	if !p.last.IsZero() {
		next := p.last.Add(p.interval)
		if p.jitter > 0 {
			next = next.Add(rand.N(p.jitter + 1))
		}
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.last = time.Now()
	return nil
}
