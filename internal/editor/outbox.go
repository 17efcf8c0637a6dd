package editor

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// An Outbox holds the messages that wait to be written to a client. The goroutine
// that reads from the client puts them there and [Outbox.Run] writes them, so that a client
// that writes before it reads does not hold up itself, and one that does not
// read holds up nobody else.
type Outbox struct {
	full func()

	mu    sync.Mutex
	queue []outgoing
	size  int // of the queue, in bytes
	over  bool
	wake  chan struct{} // capacity 1
	ended chan struct{} // closed when Run returns
}

type outgoing struct {
	size  int
	write func(context.Context)
}

const (
	// maxOutbox bounds what waits, in messages.
	maxOutbox = 4096
	// maxOutboxSize bounds what waits, in bytes. One message may be larger: a
	// client that reads gets every message.
	maxOutboxSize = 64 << 20
)

// NewOutbox returns an empty outbox. It calls full once, on another goroutine,
// when the client lets too much pile up; the caller gives the client up.
func NewOutbox(full func()) *Outbox {
	return &Outbox{full: full, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Put queues a message; size is what it keeps in memory until write is called.
func (o *Outbox) Put(size int, write func(context.Context)) {
	o.mu.Lock()
	if len(o.queue) >= maxOutbox || o.size > maxOutboxSize {
		first := !o.over
		o.over, o.queue, o.size = true, nil, 0
		o.mu.Unlock()
		if first {
			go o.full()
		}
		return
	}
	if !o.over {
		o.queue = append(o.queue, outgoing{size, write})
		o.size += size
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run writes what is put, in order, until the context ends. It is called once.
func (o *Outbox) Run(ctx context.Context) {
	defer close(o.ended)
	for {
		o.mu.Lock()
		var next outgoing
		if len(o.queue) > 0 {
			next, o.queue[0] = o.queue[0], outgoing{}
			o.queue, o.size = o.queue[1:], o.size-next.size
		}
		o.mu.Unlock()
		if next.write != nil && ctx.Err() == nil {
			next.write(ctx)
			continue
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

// DrainTimeout bounds the wait for a client that does not read.
const DrainTimeout = time.Second

// Drain waits until what was put is written or Run has ended, at most
// [DrainTimeout].
func (o *Outbox) Drain() {
	done := make(chan struct{})
	o.Put(0, func(context.Context) { close(done) })
	timeout := time.NewTimer(DrainTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-o.ended:
	case <-timeout.C:
	}
}

// Drained returns a stream of messages that ends only when the outbox is
// written: a client that closes its side gets the answers to what it asked
// before. Answers to malformed messages go to the outbox.
func Drained(s *Stream, o *Outbox) jsonrpc2.ObjectStream {
	s.Malformed = func(answer any) {
		o.Put(malformedSize, func(context.Context) { s.WriteObject(answer) })
	}
	return drained{s, o}
}

// malformedSize is about the size in bytes of the answer to a malformed message.
const malformedSize = 1 << 10

type drained struct {
	*Stream
	out *Outbox
}

func (s drained) ReadObject(v any) error {
	err := s.Stream.ReadObject(v)
	if err == io.EOF {
		s.out.Drain()
	}
	return err
}
