package main

import (
	"slices"
	"time"
)

// A window counts what happens, and allows limit of it in any minute.
type window struct {
	limit int
	past  []time.Duration // the last times, the oldest first, at most limit
}

// delay returns how long it takes until the window has room.
func (w *window) delay(now time.Duration) time.Duration {
	if len(w.past) < w.limit {
		return 0
	}
	return max(0, w.past[0]+time.Minute-now)
}

// take counts one more. The window must have room.
func (w *window) take(now time.Duration) {
	if len(w.past) == w.limit {
		w.past = w.past[1:]
	}
	w.past = append(w.past, now)
}

// A queue decides which call may run, round robin between the sessions that have
// waiting calls.
type queue struct {
	limit   int
	rate    *window // if it is set, limits the starts in any minute as well
	latency time.Duration
	running int

	// A careful queue halves its limit when the account's quota is used up, starts
	// nothing until it has room, and then tries more again, up to most.
	careful bool
	most    int
	share   float64       // the limit, with its progress towards the next slot
	until   time.Duration // starts nothing before

	firstCome bool            // no turns between sessions
	waiting   map[int][]*task // by session
	turns     []int           // the sessions that have waiting calls, the next one first
	wake      *event
}

// turn returns whose turn a call waits for.
func (q *queue) turn(t *task) int {
	if q.firstCome {
		return 0
	}
	return t.session
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, most: limit, share: float64(limit), waiting: map[int][]*task{}}
}

func (q *queue) add(t *task) {
	s := q.turn(t)
	if len(q.waiting[s]) == 0 {
		q.turns = append(q.turns, s)
	}
	q.waiting[s] = append(q.waiting[s], t)
}

func (q *queue) remove(t *task) {
	s := q.turn(t)
	tasks := q.waiting[s]
	i := slices.Index(tasks, t)
	if i < 0 {
		return
	}
	q.waiting[s] = slices.Delete(tasks, i, i+1)
	if len(tasks) == 1 {
		turn := slices.Index(q.turns, s)
		q.turns = slices.Delete(q.turns, turn, turn+1)
	}
}

// next removes the call whose turn it is. It returns nil if none waits.
func (q *queue) next() *task {
	if len(q.turns) == 0 {
		return nil
	}
	s := q.turns[0]
	q.turns = q.turns[1:]
	t := q.waiting[s][0]
	q.waiting[s] = q.waiting[s][1:]
	if len(q.waiting[s]) > 0 {
		q.turns = append(q.turns, s)
	}
	return t
}

// all removes all waiting calls and returns them in the order of their turns.
func (q *queue) all() (tasks []*task) {
	for t := q.next(); t != nil; t = q.next() {
		tasks = append(tasks, t)
	}
	return tasks
}

// refused reports to a careful queue that the quota was used up.
func (q *queue) refused(now, delay time.Duration) {
	if !q.careful || now < q.until {
		return
	}
	q.until = now + delay
	q.share = max(1, q.share/2)
	q.limit = int(q.share)
}

// answered reports to a careful queue that a call ended well.
func (q *queue) answered() {
	if q.careful {
		q.share = min(float64(q.most), q.share+1/q.share)
		q.limit = int(q.share)
	}
}
