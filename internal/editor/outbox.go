package editor

import (
	"context"
	"time"

	"pollux/internal/crash"
	"pollux/internal/jsonrpc"
	"pollux/internal/outbox"
)

// An Outbox holds the messages that wait to be written to a client. The goroutine
// that reads from the client puts them there and another one writes them, so a
// client that writes before it reads does not block itself, and a client that does
// not read blocks no other.
type Outbox struct {
	out *outbox.Outbox[outgoing]
}

type outgoing struct {
	size  int
	write func(context.Context)
}

const (
	// maxOutbox limits the queue, in messages.
	maxOutbox = 4096
	// maxOutboxSize limits the queue, in bytes. One message may be larger: a
	// client that reads gets every message.
	maxOutboxSize = 64 << 20
)

// NewOutbox starts an empty outbox. It calls full once, on another goroutine, when too
// much has piled up; the caller then disconnects the client.
func NewOutbox(full func()) *Outbox {
	limits := outbox.Limits[outgoing]{
		Items: maxOutbox, Bytes: maxOutboxSize, Size: func(m outgoing) int { return m.size },
	}
	return &Outbox{outbox.New(limits, func(ctx context.Context, m outgoing) {
		defer crash.Report()
		m.write(ctx)
	}, full)}
}

// Put queues a message. It keeps size bytes in memory until write is called.
func (o *Outbox) Put(size int, write func(context.Context)) { o.out.Put(outgoing{size, write}) }

// drainTimeout limits the wait for a client that does not read.
const drainTimeout = time.Second

// Drain waits until all queued messages are written or the outbox has ended, but at most
// a second.
func (o *Outbox) Drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	o.out.Drain(ctx)
}

// Close drops the queue. It waits for the message that is being written, but at most a
// second: if the other side does not read the pipe, even closing it does not end the
// write.
func (o *Outbox) Close() { o.out.CloseWithin(drainTimeout) }

// Drained returns a stream that reports its end only after the outbox has been written.
// So a client that closes its side, or sends something other than a message, still
// receives the answers to its requests. Answers to malformed messages go to the outbox,
// too.
func Drained(s *jsonrpc.Framed, o *Outbox) jsonrpc.Stream {
	s.Malformed = func(answer any) {
		o.Put(malformedSize, func(context.Context) { s.WriteObject(answer) })
	}
	return drained{s, o}
}

// malformedSize is the approximate size in bytes of the answer to a malformed
// message.
const malformedSize = 1 << 10

type drained struct {
	*jsonrpc.Framed
	out *Outbox
}

func (s drained) ReadMessage() (jsonrpc.Message, error) {
	m, err := s.Framed.ReadMessage()
	if err != nil {
		s.out.Drain()
	}
	return m, err
}
