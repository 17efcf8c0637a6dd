package bridge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A queue lets a number of calls run at once and the others wait, first come
// first served.
//
// A slot is held by a [slot] and by nothing else: whoever leaves the queue
// without one, for whatever reason, has taken nothing from it.
type queue struct {
	max int

	mu      sync.Mutex
	running int
	waiting []*waiter
}

type waiter struct {
	granted chan struct{}
	moved   chan struct{} // holds one when the place may have changed
}

// A slot is the right to run. It is given back when it has been released as
// often as it was held; it is held once from the start.
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

// queueTimeout is how long a call waits for a slot; a job waits as long as its
// deadline lets it.
const queueTimeout = 30 * time.Second

// acquire waits for a slot, at most for queueTimeout. place is told the call's
// place in the queue, from 1, as it changes.
func (q *queue) acquire(ctx context.Context, place func(int)) (*slot, error) {
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
		place(n)
		var err error
		select {
		case <-w.granted:
			return &slot{q: q, held: 1}, nil
		case <-w.moved:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-limit.C:
			running, waiting := q.load()
			err = fmt.Errorf("no free place within %s: %d calls run and %d wait; try again later, or raise GEMINI_MAX_CONCURRENT (now %d)",
				queueTimeout, running, waiting-1, q.max)
		}
		q.mu.Lock()
		i := slices.Index(q.waiting, w)
		if i < 0 { // granted meanwhile
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

// give hands a slot to the first that waits.
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

// load is how many calls run and wait.
func (q *queue) load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, len(q.waiting)
}

// A pacer keeps starts apart: each comes at least gap, and up to jitter more,
// after the one before.
type pacer struct {
	gap, jitter time.Duration
	turn        chan struct{} // holds one when nobody waits to start
	last        time.Time     // when the last one started; guarded by turn
}

func newPacer(gap, jitter time.Duration) *pacer {
	p := &pacer{gap: gap, jitter: jitter, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// wait returns when the caller may start.
func (p *pacer) wait(ctx context.Context) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.turn <- struct{}{} }()
	if !p.last.IsZero() {
		next := p.last.Add(p.gap)
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
