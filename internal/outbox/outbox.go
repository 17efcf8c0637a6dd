// Package outbox provides queues between goroutines that must not wait for
// each other.
//
// An [Outbox] has a goroutine that writes what was put. A [Queue] is for a
// goroutine that waits for other things too. A [Signal] only wakes.
package outbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Signal wakes one goroutine. Signals that come before it looks are one.
type Signal chan struct{}

// NewSignal returns a signal that has not been set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the goroutine that receives from the signal, now or when it does.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Every calls f each time the signal has been set, and at least once in each interval, until
// ctx ends.
func (s Signal) Every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-s:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		f()
	}
}

// Limits bound what waits in a queue. A zero field bounds nothing. A single value
// of any size always finds room.
type Limits[T any] struct {
	Items int
	Bytes int
	// Size returns the size of a value in bytes.
	Size func(T) int
}

// exceeded reports whether no more may be added.
func (l Limits[T]) exceeded(items, bytes int) bool {
	return l.Items > 0 && items >= l.Items || l.Bytes > 0 && bytes > l.Bytes
}

// A Queue holds values in order until one goroutine takes them. Any goroutine
// may put. The zero value is not usable.
type Queue[T any] struct {
	limits Limits[T]
	ready  Signal

	mu     sync.Mutex
	values []T
	bytes  int
}

// NewQueue returns an empty queue.
func NewQueue[T any](limits Limits[T]) *Queue[T] {
	return &Queue[T]{limits: limits, ready: NewSignal()}
}

// Put adds a value. It never blocks. It reports false, and adds nothing, if
// what waits exceeds the limits.
func (q *Queue[T]) Put(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limits.exceeded(len(q.values), q.bytes) {
		return false
	}
	q.addLocked(v)
	return true
}

// PutLatest adds a value and drops the oldest ones beyond the limits.
func (q *Queue[T]) PutLatest(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.limits.exceeded(len(q.values), q.bytes) {
		q.takeLocked()
	}
	q.addLocked(v)
}

// putAlways adds a value regardless of the limits.
func (q *Queue[T]) putAlways(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(v)
}

func (q *Queue[T]) addLocked(v T) {
	q.values = append(q.values, v)
	q.bytes += q.size(v)
	q.ready.Set()
}

func (q *Queue[T]) size(v T) int {
	if q.limits.Size == nil {
		return 0
	}
	return q.limits.Size(v)
}

// Ready receives after a Put. The receiver calls Take until nothing is left.
func (q *Queue[T]) Ready() <-chan struct{} { return q.ready }

// Take removes the oldest value. It never blocks.
func (q *Queue[T]) Take() (v T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked()
}

func (q *Queue[T]) takeLocked() (v T, ok bool) {
	if len(q.values) == 0 {
		return v, false
	}
	var none T
	v, q.values[0] = q.values[0], none // the array must not keep it in memory
	q.values = q.values[1:]
	q.bytes -= q.size(v)
	return v, true
}

// TakeAll removes all values.
func (q *Queue[T]) TakeAll() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	values := q.values
	q.values, q.bytes = nil, 0
	return values
}

// An Outbox writes values in order on its own goroutine, so that callers of Put
// never wait for a slow reader on the other side.
//
// Locks: Outbox.mu, then that of its queue.
type Outbox[T any] struct {
	queue *Queue[item[T]]
	write func(context.Context, T)
	full  func()

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex
	ended bool // closed, or a Put exceeded the limits: nothing is accepted
}

// An item is a value, or a mark of [Outbox.Drain].
type item[T any] struct {
	value T
	mark  chan struct{}
}

// ErrEnded is the error of [Outbox.Drain] for an outbox that is closed or full.
var ErrEnded = errors.New("the outbox has ended")

// New starts an outbox. It calls write for each value, one at a time. When what
// waits exceeds the limits, it drops everything, accepts nothing more, and calls
// full once on another goroutine; full may be nil and may call Close.
func New[T any](limits Limits[T], write func(context.Context, T), full func()) *Outbox[T] {
	items := Limits[item[T]]{Items: limits.Items, Bytes: limits.Bytes}
	if limits.Size != nil {
		items.Size = func(i item[T]) int {
			if i.mark != nil {
				return 0
			}
			return limits.Size(i.value)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Outbox[T]{queue: NewQueue(items), write: write, full: full, cancel: cancel, done: make(chan struct{})}
	go o.run(ctx)
	return o
}

// Put queues a value. It never blocks. It reports false for an outbox that is
// full or closed.
func (o *Outbox[T]) Put(v T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	if o.queue.Put(item[T]{value: v}) {
		return true
	}
	o.endLocked()
	if o.full != nil {
		go o.full()
	}
	return false
}

// endLocked drops what waits.
func (o *Outbox[T]) endLocked() {
	o.ended = true
	for _, dropped := range o.queue.TakeAll() {
		if dropped.mark != nil {
			close(dropped.mark)
		}
	}
}

func (o *Outbox[T]) run(ctx context.Context) {
	defer close(o.done)
	for {
		for ctx.Err() == nil {
			next, ok := o.queue.Take()
			if !ok {
				break
			}
			if next.mark != nil {
				next.mark <- struct{}{}
				continue
			}
			o.write(ctx, next.value)
		}
		select {
		case <-o.queue.Ready():
		case <-ctx.Done():
			return
		}
	}
}

// Drain waits until everything put before is written. It returns earlier with
// [ErrEnded] when the outbox is closed or full, and with the context's error
// when that ends.
func (o *Outbox[T]) Drain(ctx context.Context) error {
	mark := make(chan struct{}, 1) // closed if it is dropped
	o.mu.Lock()
	ended := o.ended
	if !ended {
		o.queue.putAlways(item[T]{mark: mark})
	}
	o.mu.Unlock()
	if ended {
		return ErrEnded
	}
	select {
	case _, written := <-mark:
		if written {
			return nil
		}
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close drops what waits, ends the context of the write under way, and returns
// when the goroutine has ended. A write that does not follow its context must be
// unblocked first, for example by closing the connection. Close must not be
// called by write.
func (o *Outbox[T]) Close() {
	o.end()
	<-o.done
}

// CloseWithin is Close for a write that nothing unblocks, such as one to a pipe
// whose reader has stopped. After the timeout it leaves the goroutine behind.
func (o *Outbox[T]) CloseWithin(timeout time.Duration) {
	o.end()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

func (o *Outbox[T]) end() {
	o.mu.Lock()
	o.endLocked()
	o.mu.Unlock()
	o.cancel()
}
