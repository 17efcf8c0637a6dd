// Package agent defines how the bridge asks an agent: a [Request] goes in,
// events come out while the agent works, and a [Result] comes at the end. A
// [Runner] hides how the agent is started, how its output is read, and how it is
// kept read-only. An [Agent] is all that the runners know of one agent.
package agent

import (
	"context"
	"errors"
	"time"
)

// ErrClosed is the cause of runs that [Runner.Close] ended.
var ErrClosed = errors.New("Pollux is shutting down")

// MaxAnswer limits an answer, in bytes. The rest is dropped, and
// [Result.Truncated] is set.
const MaxAnswer = 8 << 20

// A Request is one question to an agent.
type Request struct {
	// Prompt is the text for the model. A runner changes it only where the agent
	// would otherwise read it as a command or a file name.
	Prompt string
	// Images are pictures for the model: paths relative to Dir, inside it.
	Images []string
	// Model is the model to ask. Empty leaves the choice to the agent.
	Model string
	// Dir is the directory that the agent works in, as an absolute path.
	Dir string
	// Verbatim returns the answer exactly as the model wrote it. Otherwise the
	// runner removes the escapes that the model quotes from an escaped prompt.
	Verbatim bool
	// Session names the conversation that the question belongs to. If the runner
	// still has it, Prompt continues it. Otherwise Replay, which is Prompt with
	// the transcript before it, starts it again.
	Session, Replay string
	// Change, if set, replaces the prompt in a runner that can serve the agent its
	// files: the agent's own tools then write to Files and not to the disk.
	Change *Change
	// Pace, if set, is called before a process is started for this request alone.
	// It returns when the process may start.
	Pace func(context.Context) error
	// Released, if set, is called once, when no process works on the request any
	// more. That may be after Run has returned: a process that was told to end
	// needs time.
	Released func()
}

// A Change is a request for changes to files.
type Change struct {
	Prompt, Replay string // as in [Request]
	// Files returns what the tools of one attempt read and write. The next
	// attempt starts with new Files.
	Files func() Files
}

// Files are what an agent's tools read and write. Paths are absolute.
type Files interface {
	Read(path string) (string, error)
	Write(path, text string) error
}

// A Runner asks an agent. Its methods may be called from several goroutines.
type Runner interface {
	// Run asks one question. It calls emit for each event, from one goroutine,
	// and not after it has returned.
	//
	// The error is an [*Error], unless the context ended: then Run returns at
	// once with the context's cause. With an error the result holds what had
	// arrived by then.
	Run(ctx context.Context, req Request, emit func(Event)) (Result, error)
	// Check returns the agent's program, with an error if it is not installed or
	// cannot be enforced read-only. It starts a process only to ask a program of
	// unknown version for its version, once. The error is an [*Error], or the
	// cause of the context's end.
	Check(ctx context.Context) (Program, error)
	// Forget drops a conversation.
	Forget(session string)
	// Workers returns the processes that wait for requests or work on them.
	Workers() []Worker
	// Close ends the running requests with [ErrClosed] and waits for all
	// processes to end. Calling it again does no harm.
	Close() error
}

// The kinds of runners.
const (
	Spawned = "spawn"
	Warmed  = "warm"
)

// A Worker is a process of a warm runner.
type Worker struct {
	PID int `json:"pid"`
	// Dir is its workspace.
	Dir string `json:"dir"`
	// Memory is its resident memory in bytes; 0 if unknown.
	Memory int64 `json:"memory"`
	// Running is the number of requests it works on, Sessions the number of
	// conversations it has started.
	Running  int       `json:"running"`
	Sessions int       `json:"sessions"`
	Started  time.Time `json:"started"`
	Used     time.Time `json:"used"`
}

// A Result is the outcome of a run.
type Result struct {
	// Answer is the text after the last tool use, Narration the text before it.
	Answer, Narration string
	// Model is the model that answered, according to the agent's count of tokens;
	// of several, the one that wrote the most. After a run that did not get that
	// far it is the requested model.
	Model  string
	Tokens Tokens
	// Tools is the number of tool uses.
	Tools int
	// Truncated reports that the answer was longer than [MaxAnswer].
	Truncated bool
	// Runner is [Spawned] or [Warmed]; empty if no process was reached.
	Runner string
	// Changed reports that the request's Change was asked.
	Changed bool
}

// Partial returns the text of an unfinished run: the answer as far as it
// arrived, else the text before it.
func (r Result) Partial() string {
	if r.Answer != "" {
		return r.Answer
	}
	return r.Narration
}

// Tokens are the agent's counts for a run, over all models.
type Tokens struct {
	Input  int `json:"input"`
	Output int `json:"output"`
	Cached int `json:"cached"`
	Total  int `json:"total"`
}

// An Event is something that happened in a run: [Started], [Text], [ToolUse],
// [ToolResult], [Retry], [Warning] or [Stats].
type Event interface{ event() }

type (
	// Started reports that the agent is running and has the prompt.
	Started struct{}
	// Text is a piece of the model's text.
	Text struct{ Text string }
	// A ToolUse is a tool call by the model. Summary is its most informative
	// argument, such as the file or the pattern, in one short line.
	ToolUse struct{ Name, Summary string }
	// A ToolResult is the end of a tool call. Message is that of the error.
	ToolResult struct {
		Name    string
		OK      bool
		Message string
	}
	// A Retry reports that the model's service refused, and that the agent will
	// ask again after Wait.
	Retry struct {
		Attempt int
		Wait    time.Duration
		Kind    Kind
		Message string
		// Unsure reports that the retry may belong to another request.
		Unsure bool
	}
	// A Warning is a message of the agent during the run.
	Warning struct{ Message string }
	// Stats are the figures of the run.
	Stats struct {
		Model  string
		Tokens Tokens
	}
)

func (Started) event()    {}
func (Text) event()       {}
func (ToolUse) event()    {}
func (ToolResult) event() {}
func (Retry) event()      {}
func (Warning) event()    {}
func (Stats) event()      {}
