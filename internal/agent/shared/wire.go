package shared

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/jsonl"
	"pollux/internal/jsonrpc"
)

// Protocol is the version of the wire between bridges and pools. Both sides must
// have the same, except for status and stop, which are as they were in version 1.
const Protocol = 2

// commandProtocol is the version in a command's Hello: a command only calls status and stop. It reaches pools
// of all versions.
const commandProtocol = 1

// maxLine limits a message, in bytes. It has room for the largest prompt, its replay and
// JSON escapes.
const maxLine = 128 << 20

// The methods. A bridge calls run, keep, kept and check, and notifies cancel, forget and
// ahead. A command calls status and stop. A pool notifies event, and calls file in change
// mode.
//
// The response to run says that no process works on the request any more. The outcome is in
// the request's last event.
const (
	methodRun    = "run"
	methodCancel = "cancel"
	methodForget = "forget"
	methodKeep   = "keep"
	methodKept   = "kept"
	methodAhead  = "ahead"
	methodCheck  = "check"
	methodStatus = "status"
	methodStop   = "stop"
	methodEvent  = "event"
	methodFile   = "file"
)

// codeEnding is the code of the error response to a request that another pool must answer,
// because this one ends.
const codeEnding = 1

// A Hello is the first message on a connection, from the side that dials the socket.
type Hello struct {
	Protocol int `json:"protocol"`
	// Agent is the name of the agent to ask. It is empty on the connection of a command.
	Agent string `json:"agent,omitempty"`
	// Source says for whom the agent runs. Without one, it is the source of the pool
	// itself.
	Source *agent.Source `json:"source,omitempty"`
	// PID and Dir describe the bridge, for `pollux status`.
	PID int    `json:"pid,omitempty"`
	Dir string `json:"dir,omitempty"`
}

// A Welcome answers a Hello.
type Welcome struct {
	// Name tells a pool from another program.
	Name     string `json:"name"`
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	// Walled reports whether the pool's agents run behind a wall: see [agent.Wall].
	Walled bool `json:"walled,omitempty"`
	// Error says why the pool does not serve the connection.
	Error string `json:"error,omitempty"`
}

// welcomeName is the Name of a Welcome.
const welcomeName = "pollux pool"

// A refusal reports that the program that answered does not serve the connection.
type refusal struct{ error }

// check returns a [refusal] if the pool does not serve the connection of a bridge, or of a
// command.
func (w Welcome) check(command bool) error {
	switch {
	case w.Name != welcomeName:
		return refusal{errors.New("the program that answers is not a pool of Pollux")}
	case w.Error != "":
		return refusal{errors.New(w.Error)}
	case w.Protocol != Protocol && !command:
		return refusal{otherProtocol(w.Version)}
	}
	return nil
}

// otherProtocol returns the error for sides with different protocols.
func otherProtocol(version string) error {
	return fmt.Errorf("the pool is of Pollux %s, which cannot talk to the version of this bridge: "+
		"install the same version on both sides", version)
}

// A requestID names a request of the connection. IDs are counted from 1.
type requestID struct {
	ID int `json:"id"`
}

// A runParams is a request of a bridge. TimeLeft is the time until its deadline, or 0.
type runParams struct {
	ID       int           `json:"id"`
	TimeLeft time.Duration `json:"timeLeft,omitempty"`
	Request  agent.Request `json:"request"`
}

// An eventParams is news of a request: an event, the beginning of an attempt in change mode,
// or the outcome. Without a request, it is a sign of life.
type eventParams struct {
	ID      int             `json:"id,omitempty"`
	Type    string          `json:"type,omitempty"`
	Event   json.RawMessage `json:"event,omitempty"`
	Attempt int             `json:"attempt,omitempty"` // counted from 1
	Outcome *outcome        `json:"outcome,omitempty"`
}

// An outcome is the end of a request. At most one of Fault and Error is set.
type outcome struct {
	Result agent.Result `json:"result"`
	failure
}

// A failure is an error in a message.
type failure struct {
	Fault *agent.Error `json:"fault,omitempty"`
	Error string       `json:"error,omitempty"`
}

func failureOf(err error) (f failure) {
	if err != nil && !errors.As(err, &f.Fault) {
		f.Error = err.Error()
	}
	return f
}

func (f failure) err() error {
	switch {
	case f.Fault != nil:
		return f.Fault
	case f.Error != "":
		return errors.New(f.Error)
	}
	return nil
}

// A fileParams reads a file of an attempt or, with a text, writes it.
type fileParams struct {
	ID      int     `json:"id"`
	Attempt int     `json:"attempt"`
	Path    string  `json:"path"`
	Text    *string `json:"text,omitempty"`
}

type checkResult struct {
	Program agent.Program `json:"program"`
	failure
}

// A record describes a conversation with N exchanges, as a bridge knows it. In a question,
// N is how many the bridge knows.
type record struct {
	ID   string          `json:"id"`
	N    int             `json:"n,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

type aheadParams struct {
	Dir string `json:"dir"`
}

type stopParams struct {
	// Now ends the requests in progress.
	Now bool `json:"now,omitempty"`
}

// events holds an event of each type.
var events = []agent.Event{
	agent.Queued{}, agent.Starting{}, agent.Started{}, agent.Text{}, agent.ToolUse{}, agent.ToolResult{},
	agent.Retry{}, agent.FellBack{},
}

func eventName(ev agent.Event) string { return reflect.TypeOf(ev).Name() }

// newEventParams returns the message of an event.
func newEventParams(request int, ev agent.Event) (eventParams, error) {
	data, err := json.Marshal(ev)
	return eventParams{ID: request, Type: eventName(ev), Event: data}, err
}

// event returns the event of a message.
func (p eventParams) event() (agent.Event, error) {
	i := slices.IndexFunc(events, func(ev agent.Event) bool { return eventName(ev) == p.Type })
	if i < 0 {
		return nil, fmt.Errorf("unknown event %q", p.Type)
	}
	v := reflect.New(reflect.TypeOf(events[i]))
	err := json.Unmarshal(p.Event, v.Interface())
	return v.Elem().Interface().(agent.Event), err
}

// A Status describes a pool.
type Status struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Socket is the path of its socket.
	Socket string `json:"socket"`
	// Memory is the result of proc.Memory for the pool itself, in bytes, or 0 if unknown.
	Memory int64 `json:"memory"`
	// Ends is when the pool ends if no request comes. It is zero while a request
	// runs or waits.
	Ends time.Time `json:"ends,omitzero"`
	// Stopping reports whether the pool ends once its requests have ended.
	Stopping bool           `json:"stopping,omitempty"`
	Sessions []Session      `json:"sessions"`
	Workers  []agent.Worker `json:"workers"`
	Queues   []queue.Load   `json:"queues"`
	// Wall says whether agents run behind the wall, and if not, why.
	Wall string `json:"wall,omitempty"`
	// Settings are those that the pool took from its environment when it started, by
	// the names of their variables.
	Settings map[string]string `json:"settings,omitempty"`
}

// A Session is a bridge that is connected to a pool.
type Session struct {
	// Caller is its name in the queues.
	Caller string `json:"caller"`
	// PID and Dir are the process and the directory of the bridge. They are empty for a
	// bridge on another machine.
	PID   int       `json:"pid,omitempty"`
	Dir   string    `json:"dir,omitempty"`
	Since time.Time `json:"since"`
	// Requests is how many of its requests run or wait. Conversations is how many of
	// its conversations a process of the pool continues.
	Requests      int `json:"requests"`
	Conversations int `json:"conversations"`
}

// A link is a connection on which messages are lines.
type link struct {
	conn  io.ReadWriteCloser
	r     *jsonl.Reader
	w     *jsonl.Writer
	moved atomic.Int64 // the time at which bytes last arrived or left, in nanoseconds
}

const (
	// writeTimeout is how long the other side may not read before the connection ends: a
	// bridge whose client is stopped must not hold a process.
	writeTimeout = time.Minute
	// maxWrite is how many bytes one write has.
	maxWrite = 64 << 10
)

func newLink(conn io.ReadWriteCloser) *link {
	l := &link{conn: conn}
	l.r, l.w = jsonl.NewReader(l, maxLine), jsonl.NewWriter(l)
	return l
}

// messages returns the messages that follow the greetings.
func (l *link) messages() jsonrpc.Stream {
	return jsonrpc.Lines(struct {
		io.Reader
		io.Closer
	}{l.r, l}, l, maxLine)
}

// quiet returns the time since bytes last arrived or left.
func (l *link) quiet() time.Duration { return time.Since(time.Unix(0, l.moved.Load())) }

// Read implements [io.Reader].
func (l *link) Read(b []byte) (int, error) {
	n, err := l.conn.Read(b)
	l.moved.Store(time.Now().UnixNano())
	return n, err
}

// Write implements [io.Writer]. It closes a connection that does not accept the bytes in time.
func (l *link) Write(b []byte) (n int, err error) {
	for len(b) > n && err == nil {
		if c, ok := l.conn.(net.Conn); ok {
			c.SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		var wrote int
		wrote, err = l.conn.Write(b[n:min(n+maxWrite, len(b))])
		n += wrote
		l.moved.Store(time.Now().UnixNano())
	}
	if err != nil {
		l.Close()
	}
	return n, err
}

// greeting reads a Hello or a Welcome.
func (l *link) greeting(v any) error {
	line, err := l.r.ReadLine()
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// Close implements [io.Closer].
func (l *link) Close() error { return l.conn.Close() }
