package shared

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/jsonl"
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// AskStatus returns the state of the pool at a socket.
func AskStatus(ctx context.Context, path string) (Status, error) {
	var s Status
	err := ask(ctx, path, methodStatus, nil, &s)
	s.Socket = path
	return s, err
}

// stopInterval is the time between two looks at whether a pool has ended.
const stopInterval = 20 * time.Millisecond

// Stop ends a pool once its running requests have ended, or at once. It returns when the
// pool's process has ended, or the cause of the context's end.
func Stop(ctx context.Context, pool Status, now bool) error {
	if err := ask(ctx, pool.Socket, methodStop, stopParams{now}, nil); err != nil && sys.Alive(pool.PID) {
		return err
	}
	look := time.NewTicker(stopInterval)
	defer look.Stop()
	for sys.Alive(pool.PID) {
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
	conn, err := Dial(ctx, path)
	if err != nil {
		return err
	}
	l, _, err := greet(ctx, conn, &Hello{Protocol: Protocol})
	if err != nil {
		return err
	}
	rpc := newConn(ctx, l, func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {})
	defer rpc.Close()
	return rpc.Call(ctx, method, params, result)
}

// WriteHello greets a pool for a bridge that reads the pool's welcome.
func WriteHello(w io.Writer, h Hello) error { return jsonl.NewWriter(w).Encode(h) }

// String returns the status in lines.
func (s Status) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	ends := ""
	switch {
	case s.Stopping:
		ends = ", stops after its running calls"
	case !s.Ends.IsZero():
		ends = ", ends in " + span(time.Until(s.Ends)) + " if nobody asks"
	}
	line("pool of Pollux %s", termtext.Line(s.Version, 0))
	line("  process %d, up %s, %d MB%s", s.PID, span(time.Since(s.Started)), s.Memory>>20, ends)
	for _, w := range s.Workers {
		line("  agent %s", w)
	}
	for _, c := range s.Sessions {
		where := "on another machine"
		if c.PID != 0 {
			where = fmt.Sprintf("process %d in %s", c.PID, termtext.Line(c.Dir, 0))
		}
		line("  session %s: %s, %d calls, %d conversations, for %s", c.Caller, where, c.Requests, c.Conversations, span(time.Since(c.Since)))
	}
	for _, q := range s.Queues {
		if q.Running+q.Waiting > 0 {
			line("  queue: %d of %d running, %d waiting", q.Running, q.Limit, q.Waiting)
		}
		for _, c := range q.Callers {
			line("    session %s waits with %d calls for %s", c.Caller, c.Requests, span(time.Since(c.Since)))
		}
		for _, u := range q.UsedUp {
			model := u.Model
			if model == "" {
				model = "the default model"
			}
			line("  %s: the %s is used up until %s", termtext.Line(model, 0), u.Kind, u.Until.Local().Format("15:04"))
		}
	}
	return b.String()
}

// span returns a duration for people.
func span(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }
