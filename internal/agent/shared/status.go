package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent/queue"
	"pollux/internal/jsonl"
	"pollux/internal/jsonrpc"
	"pollux/internal/paths"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
	"pollux/internal/termtext"
)

const (
	// askTimeout limits a question to a pool from a command.
	askTimeout = 5 * time.Second
	// stopInterval is the time between two looks at whether a pool has ended.
	stopInterval = 20 * time.Millisecond
)

// ErrSilent reports a pool that does not answer in time.
var ErrSilent = errors.New("it does not answer: run `pollux doctor bridge`")

// An UnreachableError reports a pool that runs, but does not answer or speaks another
// version of the protocol.
type UnreachableError struct {
	Socket string
	// PID is the pool's process, or 0 if unknown.
	PID int
	Err error
}

func (e *UnreachableError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("the pool at %s: %v", e.Socket, e.Err)
	}
	return fmt.Sprintf("the pool with process %d: %v", e.PID, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// List returns the states of all running pools of this user, and those that cannot be
// asked. It skips the sockets of pools that were killed.
func List(ctx context.Context) (running []Status, unreachable []*UnreachableError, err error) {
	sockets, err := Sockets()
	running = []Status{}
	for _, path := range sockets {
		s, err := AskStatus(ctx, path)
		var failed *UnreachableError
		switch {
		case err == nil:
			running = append(running, s)
		case errors.As(err, &failed):
			unreachable = append(unreachable, failed)
		}
	}
	return running, unreachable, err
}

// AskStatus returns the state of the pool at a socket. The error is an
// [UnreachableError] unless no process serves the socket.
func AskStatus(ctx context.Context, path string) (Status, error) {
	var s Status
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, ErrSilent)
	defer cancel()
	err := ask(ctx, path, methodStatus, nil, &s)
	s.Socket = path
	return s, err
}

// Stop ends a pool once its running requests have ended, or immediately. It returns when the
// pool's process has ended. If the context ends first, the error is its [context.Cause].
func Stop(ctx context.Context, pool Status, now bool) error {
	asking, cancel := context.WithTimeoutCause(ctx, askTimeout, ErrSilent)
	defer cancel()
	if err := ask(asking, pool.Socket, methodStop, stopParams{now}, nil); err != nil && proc.Alive(pool.PID) {
		return err
	}
	look := time.NewTicker(stopInterval)
	defer look.Stop()
	for !proc.Ended(pool.PID) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ask connects to a pool, calls one of its methods, and disconnects.
func ask(ctx context.Context, path, method string, params, result any) error {
	if is, err := sock.IsSocket(path); err == nil && !is {
		return notASocket(path)
	}
	conn, err := sock.Dial(ctx, path)
	if err != nil {
		return err
	}
	pid := peer(conn)
	l, w, err := greet(ctx, conn, &Hello{Protocol: commandProtocol})
	if err != nil {
		return &UnreachableError{path, cmp.Or(w.PID, pid), err}
	}
	rpc := jsonrpc.NewConn(ctx, l.messages(), func(*jsonrpc.Conn, *jsonrpc.Request) {})
	defer rpc.Close()
	if err := rpc.Call(ctx, method, params, result); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return &UnreachableError{path, w.PID, err}
	}
	return nil
}

// peer returns the process at the other end of a connection, or 0 if it is unknown.
func peer(conn net.Conn) int {
	p, _ := sock.PeerOf(conn)
	return p.PID
}

// notASocket reports that something else has the name of a pool's socket.
func notASocket(path string) error { return fmt.Errorf("%s is not a socket: remove it", path) }

// WriteHello greets a pool for a bridge that reads the pool's welcome.
func WriteHello(w io.Writer, h Hello) error { return jsonl.NewWriter(w).Encode(h) }

// Requests returns how many requests run or wait.
func (s Status) Requests() (n int) {
	for _, c := range s.Sessions {
		n += c.Requests
	}
	return n
}

// String returns the status in lines.
func (s Status) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("pool of Pollux %s", termtext.Line(s.Version, 0))
	line("  process %d, up %s, %d MB%s", s.PID, span(time.Since(s.Started)), s.Memory>>20, s.ending())
	if s.Wall != "" {
		line("  %s", termtext.Line(s.Wall, 0))
	}
	for _, w := range s.Workers {
		line("  %s", w)
	}
	for i, c := range s.Sessions {
		same := func(other Session) bool { return c.PID != 0 && c.PID == other.PID }
		if slices.ContainsFunc(s.Sessions[:i], same) {
			continue // a bridge has a session for each agent that it asks
		}
		rest := slices.DeleteFunc(slices.Clone(s.Sessions[i+1:]), func(other Session) bool { return !same(other) })
		line("  %s", s.describe(c, rest...))
	}
	for _, q := range s.Queues {
		s.printQueue(line, q)
	}
	return b.String()
}

// ending says when the pool ends.
func (s Status) ending() string {
	switch {
	case s.Stopping:
		return "; ends after its running calls"
	case s.Ends.IsZero():
		return ""
	}
	return "; ends in " + span(time.Until(s.Ends)) + " unless a call comes"
}

// describe returns the sessions of a bridge, the first one first, in one line.
func (s Status) describe(c Session, more ...Session) string {
	where := "from another machine"
	if c.PID != 0 {
		where = fmt.Sprintf("bridge %d in %s", c.PID, termtext.Line(paths.Short(c.Dir), 0))
	}
	callers := []string{c.Caller}
	for _, other := range more {
		callers = append(callers, other.Caller)
		c.Requests += other.Requests
		c.Conversations += other.Conversations
	}
	text := fmt.Sprintf("session %s: %s, for %s", strings.Join(callers, ", "), where, span(time.Since(c.Since)))
	waiting, since := s.waiting(callers)
	if running := c.Requests - waiting; running > 0 {
		text += fmt.Sprintf(", %d running", running)
	}
	if waiting > 0 {
		text += fmt.Sprintf(", %d waiting for %s", waiting, span(time.Since(since)))
	}
	if c.Conversations > 0 {
		text += ", " + termtext.Count(c.Conversations, "conversation")
	}
	return text
}

// waiting returns how many requests of sessions wait, and since when the oldest does.
func (s Status) waiting(callers []string) (n int, since time.Time) {
	for _, q := range s.Queues {
		for _, c := range q.Callers {
			if slices.Contains(callers, c.Caller) {
				n += c.Requests
				if since.IsZero() || c.Since.Before(since) {
					since = c.Since
				}
			}
		}
	}
	return n, since
}

// printQueue prints the queue of one account.
func (s Status) printQueue(line func(format string, args ...any), q queue.Load) {
	name := "queue"
	if len(s.Queues) > 1 { // each has another account
		name += " of account " + q.Account[:min(len(q.Account), 6)]
	}
	if q.Running+q.Waiting > 0 {
		line("  %s: %d of %d calls running, %d waiting%s", name, q.Running, q.Limit, q.Waiting, nextTurns(q.Callers))
	}
	for _, u := range q.UsedUp {
		line("  %s: the %s of %s is used up until %s", name, u.Kind, termtext.Line(cmp.Or(u.Model, "the default model"), 0),
			clock(u.Until, time.Now()))
	}
}

// nextTurns names the sessions that wait, the next one first.
func nextTurns(callers []queue.Waiting) string {
	if len(callers) == 0 {
		return ""
	}
	names := make([]string, len(callers))
	for i, c := range callers {
		names[i] = "session " + c.Caller
	}
	return "; next: " + strings.Join(names, ", ")
}

// clock returns a time of the next day or so, with the date if it is not today.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("2 January, 15:04")
}

// span returns a duration for people.
func span(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }
