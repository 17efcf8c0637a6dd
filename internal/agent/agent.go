// Package agent defines how the bridge asks an agent: it sends a [Request],
// receives events while the agent works, and gets a [Result] at the end. A
// [Runner] hides how the agent is started, how its output is read, and how it is
// kept read-only. An [Agent] holds all that the runners know about one agent.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"pollux/internal/lazy"
)

// ErrClosed is the cause of the end of requests when [Runner.Close] is called.
var ErrClosed = errors.New("Pollux is shutting down")

// MaxAnswer limits an answer, in bytes. The rest is dropped, and
// [Result.Truncated] is set.
const MaxAnswer = 8 << 20

var modelName = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,199}$`)

// ValidModel reports whether a text can be the name of a model. It cannot be a flag.
func ValidModel(name string) bool { return modelName().MatchString(name) }

// A Request is one question to an agent.
type Request struct {
	// Prompt is the text for the model. A runner changes it only where the agent
	// would otherwise interpret it as a command or a file name.
	Prompt string
	// Images are pictures for the model: paths relative to Dir, inside it.
	Images []string
	// Model is the model to ask. Empty leaves the choice to the agent. Fallback is asked
	// if Model is overloaded or over its quota. Empty asks no other model.
	Model, Fallback string
	// Dir is the directory that the agent works in, as an absolute path.
	Dir string
	// Source says for whom the agent runs.
	Source Source `json:"-"`
	// Verbatim returns the answer exactly as the model wrote it. Otherwise the
	// runner removes the escapes that the model quotes from an escaped prompt.
	Verbatim bool
	// Conversation is the ID of the conversation that the question belongs to. If the
	// runner still has it, Prompt continues it. Otherwise the runner starts it again
	// with Replay, which is the transcript followed by Prompt.
	Conversation, Replay string
	// Schema, if set, is a JSON Schema for the answer. Only some agents know how to keep to it, and
	// not to every schema, so the prompt must say it, too.
	Schema json.RawMessage
	// Change, if set, replaces the prompt in a runner that can serve files to
	// the agent: the agent's tools then write to Files and not to the disk.
	Change *Change
	// Queue says how the request waits for others that use the quota of the same account.
	Queue Queue
	// Spawn starts a process for this request alone. Otherwise a runner does so only where it
	// cannot keep one running.
	Spawn bool
	// Pace, if set, is called before a process is started for this request alone.
	// It returns when the process may start.
	Pace func(context.Context) error `json:"-"`
	// Released, if set, is called once, when no process works on the request any
	// more. That may be after Run has returned, because a process needs time to
	// end.
	Released func() `json:"-"`
}

// Release calls Released once over is closed, in a goroutine of tasks, or now if over is nil.
func (r Request) Release(tasks *sync.WaitGroup, over <-chan struct{}) {
	switch {
	case r.Released == nil:
	case over == nil:
		r.Released()
	default:
		tasks.Go(func() {
			<-over
			r.Released()
		})
	}
}

// A Queue says how a request waits, together with all requests that use the quota of the
// same account.
type Queue struct {
	// Limit is how many requests may run at the same time; 0 means no limit. If requests
	// differ, the lowest limit applies.
	Limit int
	// Timeout is how long the request may wait; 0 is as long as its context.
	Timeout time.Duration
	// StartInterval is the minimum time between two starts of a process for a single
	// request. A random time of up to StartJitter is added to it.
	StartInterval, StartJitter time.Duration
}

// A Change is a request for changes to files.
type Change struct {
	Prompt, Replay string // as in [Request]
	// Files returns the files for the tools of one attempt. The next attempt
	// starts with new Files.
	Files func() Files `json:"-"`
}

// Files gives an agent's tools access to files. Paths are absolute.
type Files interface {
	Read(path string) (string, error)
	Write(path, text string) error
}

// A Runner asks an agent. Its methods may be called from several goroutines.
type Runner interface {
	// Run asks one question. It calls emit for each event, from one goroutine,
	// and never after it has returned.
	//
	// The error is an [*Error], unless the context ended: then Run returns immediately
	// with the context's cause. With an error, the result holds what had arrived by then.
	Run(ctx context.Context, req Request, emit func(Event)) (Result, error)
	Processes
}

// Processes are the processes of an agent. The methods may be called from several goroutines.
type Processes interface {
	// Check returns the program of a source, with an error if it is not installed or
	// cannot be enforced read-only. It starts a process only to ask a program of
	// unknown version for its version, once. The error is an [*Error], or
	// [context.Cause] of the context.
	Check(ctx context.Context, from Source) (Program, error)
	// Ahead starts a process for a workspace before the first request. It does not wait.
	Ahead(from Source, dir string)
	// Forget drops a conversation.
	Forget(session string)
	// Workers returns the processes of this runner that work on requests or wait for them. The
	// pool of a bridge has its own.
	Workers() []Worker
	// Close ends the requests in progress with [ErrClosed] and waits for all
	// processes to end. It may be called more than once.
	Close() error
}

// The kinds of processes that answer.
const (
	Spawned = "spawn" // a process for one request
	Warmed  = "warm"  // a process that keeps running
)

// A Result is the outcome of a run.
type Result struct {
	// Answer is the text after the last tool use. Narration is the text before
	// it.
	Answer, Narration string
	// Model is the model that answered, according to the agent's token counts.
	// If there were several, it is the one that wrote the most. If the run ended
	// too early to know, it is the requested model.
	Model  string
	Tokens Tokens
	// Tools is the number of tool uses.
	Tools int
	// Truncated reports whether the answer was longer than [MaxAnswer], or may lack a part because
	// the agent's output had a longer one.
	Truncated bool
	// Runner is [Spawned] or [Warmed], or empty if no process of the agent was reached.
	Runner string
	// Queued is the time before the agent got the prompt.
	Queued time.Duration
	// Fallback is set if the fallback model was asked. FromFallback reports whether the
	// text is from that model.
	Fallback     *Fallback
	FromFallback bool
	// Changed reports whether the runner used the request's Change.
	Changed bool
}

// A Fallback reports that another model was asked.
type Fallback struct {
	From string `json:"from"`
	To   string `json:"to"`
	Why  string `json:"why"`
}

// Partial returns the text of an unfinished run: the part of the answer that
// arrived or, without one, the text before it.
func (r Result) Partial() string {
	if r.Answer != "" {
		return r.Answer
	}
	return r.Narration
}

// Tokens holds the agent's token counts for a run, over all models.
type Tokens struct {
	Input  int `json:"input"`
	Output int `json:"output"`
	Cached int `json:"cached"`
	Total  int `json:"total"`
}

// Add returns the sums of two counts.
func (t Tokens) Add(u Tokens) Tokens {
	return Tokens{t.Input + u.Input, t.Output + u.Output, t.Cached + u.Cached, t.Total + u.Total}
}

// Sub returns the differences of two counts.
func (t Tokens) Sub(u Tokens) Tokens {
	return Tokens{t.Input - u.Input, t.Output - u.Output, t.Cached - u.Cached, t.Total - u.Total}
}

// An Event is something that happened in a run: [Queued], [Starting], [Started], [Text],
// [ToolUse], [ToolResult], [Retry] or [FellBack].
type Event interface{ event() }

type (
	// Queued reports that the request waits for its turn. Position is its place in the
	// queue, counted from 1, or 0 if it is not known yet.
	Queued struct{ Position int }
	// Starting reports that a process is started for this request alone.
	Starting struct{}
	// FellBack reports that the fallback model is asked.
	FellBack struct{ Fallback }
	// Started reports that the agent is running and has the prompt.
	Started struct{}
	// Text is a piece of the model's text.
	Text struct{ Text string }
	// A ToolUse is a tool call by the model. Summary is its most informative
	// argument, such as the file or the pattern, in one short line.
	ToolUse struct{ Name, Summary string }
	// A ToolResult is the end of a tool call. Message is the tool's error
	// message.
	ToolResult struct {
		Name    string
		OK      bool
		Message string
	}
	// A Retry reports that the model's service refused a request, and that the
	// agent will try again after Wait.
	Retry struct {
		Attempt int
		Wait    time.Duration
		Kind    Kind
		Message string
		// Session is the agent's session that it belongs to, or "" if the agent does not say.
		Session string `json:"-"`
		// Unsure reports whether the retry may belong to another request.
		Unsure bool
	}
)

// Next says when the agent tries again, such as "tries again in 5s". Some agents do not say it: then
// Wait is 0.
func (r Retry) Next() string {
	if r.Wait == 0 {
		return "tries again"
	}
	return "tries again in " + r.Wait.Round(time.Second).String()
}

func (Queued) event()     {}
func (Starting) event()   {}
func (FellBack) event()   {}
func (Started) event()    {}
func (Text) event()       {}
func (ToolUse) event()    {}
func (ToolResult) event() {}
func (Retry) event()      {}
