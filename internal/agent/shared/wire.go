package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"reflect"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/jsonl"
)

// Protocol is the version of the messages between bridges and pools. Both sides must
// have the same.
const Protocol = 1

// maxLine limits a message, in bytes. It has room for the largest prompt, its replay and
// JSON escapes.
const maxLine = 128 << 20

// The methods. A bridge calls run, check, workers, status, stop, ping and kept, and notifies
// cancel, forget, ahead and keep. A pool notifies event and released, and calls the methods of files
// while a run in change mode is in progress.
const (
	methodRun      = "run"
	methodCancel   = "cancel"
	methodEvent    = "event"
	methodReleased = "released"
	methodAttempt  = "files/attempt"
	methodRead     = "files/read"
	methodWrite    = "files/write"
	methodCheck    = "check"
	methodForget   = "forget"
	methodAhead    = "ahead"
	methodWorkers  = "workers"
	methodStatus   = "status"
	methodStop     = "stop"
	methodPing     = "ping"
	methodKeep     = "keep"
	methodKept     = "kept"
)

// A Hello is the first message on a connection, from the side that dials the socket.
type Hello struct {
	Protocol int `json:"protocol"`
	// Agent is the name of the agent to ask. It is empty on a connection that asks only
	// for the status, or stops the pool.
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

// check returns a [refusal] if the pool does not serve the connection.
func (w Welcome) check() error {
	switch {
	case w.Name != welcomeName:
		return refusal{errors.New("the program that answers is not a pool of Pollux")}
	case w.Error != "":
		return refusal{errors.New(w.Error)}
	case w.Protocol != Protocol:
		return refusal{otherProtocol(w.Version)}
	}
	return nil
}

// otherProtocol returns the error for sides with different protocols.
func otherProtocol(version string) error {
	return fmt.Errorf("the pool is of Pollux %s, which cannot talk to the version of this bridge: "+
		"install the same version on both sides", version)
}

// A runParams is a request of a bridge. TimeLeft is the time until its deadline, or 0.
type runParams struct {
	Run      int           `json:"run"`
	TimeLeft time.Duration `json:"timeLeft,omitempty"`
	Prompt   string        `json:"prompt"`
	Images   []string      `json:"images,omitempty"`
	Model    string        `json:"model,omitempty"`
	Dir      string        `json:"dir"`
	Verbatim bool          `json:"verbatim,omitempty"`
	Spawn    bool          `json:"spawn,omitempty"`
	Session  string        `json:"session,omitempty"`
	Replay   string        `json:"replay,omitempty"`
	Change   *changeParams `json:"change,omitempty"`
	Turn     agent.Turn    `json:"turn"`
}

type changeParams struct {
	Prompt string `json:"prompt"`
	Replay string `json:"replay,omitempty"`
}

// A runResult is the end of a run. At most one of Fault, Closed and Error is set.
type runResult struct {
	Result agent.Result `json:"result"`
	Fault  *agent.Error `json:"fault,omitempty"`
	// Closed reports whether the run ended because the pool ends.
	Closed bool   `json:"closed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// runID names a run of the connection.
type runID struct {
	Run int `json:"run"`
}

// A fileParams names a file of an attempt. Attempts are counted from 1.
type fileParams struct {
	Run     int    `json:"run"`
	Attempt int    `json:"attempt"`
	Path    string `json:"path,omitempty"`
	Text    string `json:"text,omitempty"`
}

type fileResult struct {
	Text string `json:"text"`
}

type checkResult struct {
	Program agent.Program `json:"program"`
	Fault   *agent.Error  `json:"fault,omitempty"`
	Error   string        `json:"error,omitempty"`
}

type sessionParams struct {
	Session string `json:"session"`
}

// A conversation is a bridge's record of a conversation with N exchanges. In a question,
// N is how many the bridge knows.
type conversation struct {
	Session string          `json:"session"`
	N       int             `json:"n"`
	Data    json.RawMessage `json:"data,omitempty"`
}

type aheadParams struct {
	Dir string `json:"dir"`
}

type stopParams struct {
	// Now ends the runs in progress.
	Now bool `json:"now,omitempty"`
}

// An eventParams is an event of a run.
type eventParams struct {
	Run   int             `json:"run"`
	Type  string          `json:"type"`
	Event json.RawMessage `json:"event"`
}

// eventTypes holds the types of events by their names in messages.
var eventTypes = map[string]reflect.Type{
	"queued":     reflect.TypeFor[agent.Queued](),
	"starting":   reflect.TypeFor[agent.Starting](),
	"started":    reflect.TypeFor[agent.Started](),
	"text":       reflect.TypeFor[agent.Text](),
	"toolUse":    reflect.TypeFor[agent.ToolUse](),
	"toolResult": reflect.TypeFor[agent.ToolResult](),
	"retry":      reflect.TypeFor[agent.Retry](),
	"fellBack":   reflect.TypeFor[agent.FellBack](),
	"warning":    reflect.TypeFor[agent.Warning](),
	"stats":      reflect.TypeFor[agent.Stats](),
}

// newEventParams returns the message of an event.
func newEventParams(run int, ev agent.Event) (eventParams, error) {
	data, err := json.Marshal(ev)
	p := eventParams{Run: run, Event: data}
	for name, t := range eventTypes {
		if t == reflect.TypeOf(ev) {
			p.Type = name
		}
	}
	return p, err
}

// event returns the event of a message.
func (p eventParams) event() (agent.Event, error) {
	t, ok := eventTypes[p.Type]
	if !ok {
		return nil, fmt.Errorf("unknown event %q", p.Type)
	}
	v := reflect.New(t)
	err := json.Unmarshal(p.Event, v.Interface())
	return v.Elem().Interface().(agent.Event), err
}

// A Status describes a pool.
type Status struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Socket is the path of the pool's socket.
	Socket string `json:"socket"`
	// Memory is the result of proc.Memory for the pool itself, in bytes, or 0 if unknown.
	Memory int64 `json:"memory"`
	// Ends is when the pool ends if nobody asks it anything. It is zero while a request
	// runs or waits.
	Ends time.Time `json:"ends,omitzero"`
	// Stopping reports whether the pool ends once its runs have ended.
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

// A link is a connection with one message per line. It implements
// jsonrpc2.ObjectStream.
type link struct {
	conn io.ReadWriteCloser
	r    *jsonl.Reader
	w    *jsonl.Writer
}

// writeTimeout is how long the other side may not read before the connection ends: a
// bridge whose client is stopped must not hold a process.
const writeTimeout = time.Minute

func newLink(conn io.ReadWriteCloser) *link {
	var w io.Writer = conn
	if c, ok := conn.(net.Conn); ok {
		w = timedWriter{c}
	}
	return &link{conn, jsonl.NewReader(conn, maxLine), jsonl.NewWriter(w)}
}

// A timedWriter closes a connection that does not accept a message in time.
type timedWriter struct{ net.Conn }

func (w timedWriter) Write(b []byte) (int, error) {
	w.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := w.Conn.Write(b)
	if err != nil {
		w.Close()
	}
	return n, err
}

func (l *link) ReadObject(v any) error {
	line, err := l.r.ReadLine()
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

func (l *link) WriteObject(v any) error { return l.w.Encode(v) }
func (l *link) Close() error            { return l.conn.Close() }

// newConn returns a JSON-RPC connection. handle is called for one message after the
// other, and must not block.
func newConn(ctx context.Context, l *link, handle handlerFunc) *jsonrpc2.Conn {
	return jsonrpc2.NewConn(ctx, l, handle, jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
}

type handlerFunc func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request)

// Handle implements [jsonrpc2.Handler].
func (f handlerFunc) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	f(ctx, conn, req)
}
