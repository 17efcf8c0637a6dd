// Package remote connects an agent to a companion that it cannot dial: in a container
// and on its host, on two machines, in WSL and Windows. It also starts the commands, and
// translates the paths, that a bridge needs to reach a pool elsewhere.
//
// For a companion, it carries the agent's stdio transport, one message on each line, to the
// companion's socket, directly or through a command such as ssh, and translates the
// paths in the messages. Everything else passes unchanged. Which fields of a message
// hold paths is the business of a [Protocol].
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/jsonl"
	"pollux/internal/outbox"
)

// A Protocol handles the messages between an agent and a companion. The package of
// the agent's protocol implements it.
type Protocol interface {
	// Greet introduces this program on a new connection, and returns the title of
	// the companion's editor and the roots of its workspace, by their names there;
	// empty if the companion does not say. The caller closes the connection.
	Greet(ctx context.Context, conn io.ReadWriter) (title string, roots []string, err error)
	// Translate returns functions that translate the paths in the lines of one
	// connection: outgoing those from the agent, incoming those from the companion.
	// The two may run at the same time. toThere and toHere translate one path; they
	// report false for a path that has no name on the other side.
	Translate(toThere, toHere func(path string) (string, bool)) (outgoing, incoming func(line []byte) []byte)
}

var (
	// ErrSilent means that the companion's side of a relay ended without a message.
	ErrSilent = errors.New("no companion has answered there")
	// ErrEnded means that the companion's side of a relay ended first, after a message.
	ErrEnded = errors.New("the connection to the companion has ended")
	// ErrUnanswered means that a relay ended before the companion had answered all requests.
	ErrUnanswered = errors.New("the companion has not answered every request: look at it with `pollux status` where it runs")
)

// broken marks an error on the companion's side of a relay if that side ended first.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// answerTimeout is how long a companion has for the answers after an agent's last message.
const answerTimeout = 30 * time.Second

// Relay carries messages between an agent and a companion until either side or the
// context ends, and closes both connections. After the agent's last message it waits for
// the answers to its requests, for at most 30 s. It returns the error of the side that
// ended first: nil at the end of the agent's stream, [ErrUnanswered], [ErrEnded] or [ErrSilent].
func Relay(ctx context.Context, agent, companion io.ReadWriteCloser, paths Paths, protocol Protocol) error {
	outgoing, incoming := unchanged, unchanged
	if len(paths) > 0 {
		outgoing, incoming = protocol.Translate(paths.ToThere, paths.ToHere)
	}
	ctx, end := context.WithCancelCause(ctx)
	open := newCalls()
	var group sync.WaitGroup
	group.Go(func() {
		_, err, unwritten := carry(companion, agent, outgoing, open.sent)
		switch {
		case unwritten != nil:
			err = broken{unwritten}
		case err == io.EOF:
			open.wait(ctx)
		}
		end(err)
	})
	group.Go(func() {
		n, err, unwritten := carry(agent, companion, incoming, open.answered)
		switch {
		case unwritten != nil:
			err = unwritten
		case err != io.EOF:
			err = broken{err}
		case n == 0:
			err = ErrSilent
		default:
			err = broken{ErrEnded}
		}
		end(err)
	})
	<-ctx.Done()
	companion.Close()
	agent.Close()
	group.Wait()
	switch err := context.Cause(ctx); {
	case err == io.EOF && open.any():
		return ErrUnanswered
	case err == io.EOF:
		return nil
	case errors.Is(err, ErrEnded) && open.any():
		return broken{ErrUnanswered}
	default:
		return err
	}
}

func unchanged(line []byte) []byte { return line }

// carry copies lines until an error of either side, which is io.EOF at the end of from, and returns
// how many it has read. It calls carried with each line as it was, after it has written it.
func carry(to io.Writer, from io.Reader, translate func([]byte) []byte, carried func(line []byte)) (n int, unread, unwritten error) {
	lines := jsonl.NewReader(from, editor.MaxMessage)
	for {
		line, err := lines.ReadLine()
		if err != nil {
			return n, err, nil
		}
		n++
		_, err = to.Write(translate(line))
		carried(line)
		if err != nil {
			return n, nil, err
		}
	}
}

// calls counts the requests of an agent that have no answer yet.
type calls struct {
	changed outbox.Signal

	mu sync.Mutex
	// open has 1 for the id of a request without an answer, and -1 for an answer that was
	// carried before its request was counted.
	open map[string]int
}

func newCalls() *calls { return &calls{changed: outbox.NewSignal(), open: make(map[string]int)} }

// A message has the fields of a JSON-RPC message that relate it to others.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"` // of a request that is cancelled
	} `json:"params"`
}

// messages returns the messages on a line that have an id or refer to one: a single
// message, or a batch. A field of an unexpected type is treated as empty.
func messages(line []byte) (all []message) {
	if !bytes.Contains(line, []byte(`"id"`)) && !bytes.Contains(line, []byte(`"requestId"`)) {
		return nil
	}
	if bytes.HasPrefix(bytes.TrimSpace(line), []byte("[")) {
		json.Unmarshal(line, &all)
		return all
	}
	var m message
	json.Unmarshal(line, &m)
	return []message{m}
}

// sent counts the requests on a line from the agent.
func (c *calls) sent(line []byte) {
	for _, m := range messages(line) {
		switch m.Method {
		case "":
		case "notifications/cancelled": // it needs no answer
			c.add(m.Params.RequestID, -1)
		default:
			c.add(m.ID, 1)
		}
	}
}

// answered counts the answers on a line from the companion.
func (c *calls) answered(line []byte) {
	for _, m := range messages(line) {
		if m.Method == "" {
			c.add(m.ID, -1)
		}
	}
}

func (c *calls) add(id json.RawMessage, n int) {
	if len(id) == 0 || string(id) == "null" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[string(id)] += n
	if c.open[string(id)] == 0 {
		delete(c.open, string(id))
	}
	c.changed.Set()
}

// any reports whether a request has no answer.
func (c *calls) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.open {
		if n > 0 {
			return true
		}
	}
	return false
}

// wait waits until all requests are answered, for at most answerTimeout.
func (c *calls) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for c.any() {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return
		}
	}
}
