// Package agent defines how the bridge asks an agent: a [Request] goes in,
// events come out while the agent works, and a [Result] at the end. A [Runner]
// hides how the agent is started, how its output is read, and how it is kept
// read-only.
package agent

import (
	"context"
	"errors"
	"time"
)

// ErrClosed is the cause of runs that [Runner.Close] ended.
var ErrClosed = errors.New("Pollux is shutting down")

// MaxAnswer bounds an answer in bytes; what is beyond is dropped, and
// [Result.Truncated] says so.
const MaxAnswer = 8 << 20

// A Request is one question to the CLI.
type Request struct {
	// Prompt goes to the model as it is, but for what the agent requires must change.
	Prompt string
	// Images are for the model to see: paths relative to Dir, inside it.
	Images []string
	// Model is what the CLI is asked for; empty leaves it to the CLI.
	Model string
	// Dir is the directory that the CLI works in, absolute.
	Dir string
	// Verbatim leaves the answer as the model wrote it, where otherwise the
	// backslashes of an escaped prompt that it quotes are taken out.
	Verbatim bool
	// Session names a conversation that the question belongs to. Where the
	// runner has it alive, Prompt goes on in it; else Replay, which is Prompt
	// with what was said before, starts it anew.
	Session, Replay string
	// Change, if set, is asked instead by a runner that can serve the CLI its
	// files: the CLI's own tools then write to Files and not to the disk.
	Change *Change
	// Pace, if set, is called before a process is started for this request alone,
	// and returns when that may be.
	Pace func(context.Context) error
	// Released, if set, is called once when no process works on the request
	// any more. That may be after Run has returned: a child that was told to
	// end takes its time.
	Released func()
}

// A Change is a request for changes of files.
type Change struct {
	Prompt, Replay string // as in [Request]
	// Files makes what the tools of one attempt see and write. What an attempt
	// that failed has written is of no use to the next.
	Files func() Files
}

// Files are what the CLI's tools that change files see and write. Paths are
// absolute.
type Files interface {
	Read(path string) (string, error)
	Write(path, text string) error
}

// A Runner asks the CLI. Its methods may be called from many goroutines.
type Runner interface {
	// Run asks one question. emit is called for each event, from one
	// goroutine, and not after Run has returned.
	//
	// The error is an [*Error], unless the context ended, which Run answers at
	// once with the context's cause. With an error the result holds whatever
	// had come by then.
	Run(ctx context.Context, req Request, emit func(Event)) (Result, error)
	// Check says which CLI it is and whether it can be held to reading. It
	// costs no process, but for a CLI that lies in no package of npm's, which
	// is asked for its version once. The error is an [*Error], or the cause of the
	// context's end.
	Check(ctx context.Context) (Program, error)
	// Forget lets go of a conversation.
	Forget(session string)
	// Workers are the processes that wait for requests or work on them.
	Workers() []Worker
	// Close ends what still runs and waits for it.
	Close() error
}

// The kinds of runners.
const (
	Spawned = "spawn"
	Warmed  = "warm"
)

// A Worker is a process of a [Warm] runner's.
type Worker struct {
	PID int `json:"pid"`
	// Dir is its workspace.
	Dir string `json:"dir"`
	// Memory is its resident memory in bytes; 0 where that cannot be told.
	Memory int64 `json:"memory"`
	// Running is how many questions it works on, Sessions how many
	// conversations it has begun.
	Running  int       `json:"running"`
	Sessions int       `json:"sessions"`
	Started  time.Time `json:"started"`
	Used     time.Time `json:"used"`
}

// A Result is what a run came to.
type Result struct {
	// Answer is the text after the last tool use, Narration what was said
	// before it.
	Answer, Narration string
	// Model is the one that answered, by the CLI's own count of tokens; of
	// several, the one that wrote the most. Of a run that did not get so far it
	// is the one asked for.
	Model  string
	Tokens Tokens
	// Tools is the number of tool uses.
	Tools int
	// Truncated says that the answer was longer than [MaxAnswer].
	Truncated bool
	// Runner is [Spawned] or [Warmed]; empty where no process was reached.
	Runner string
	// Changed says that the request's Change was asked.
	Changed bool
}

// Partial is the text of an unfinished run: the answer as far as it came, else
// what was said before it.
func (r Result) Partial() string {
	if r.Answer != "" {
		return r.Answer
	}
	return r.Narration
}

// Tokens are the CLI's counts for a run, over all models.
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
	// Started says that the CLI is up and has the prompt.
	Started struct{}
	// Text is a piece of what the model says.
	Text struct{ Text string }
	// A ToolUse is a tool that the model has called. Summary is its argument
	// that tells most: the file, the pattern, the search, in one short line.
	ToolUse struct{ Name, Summary string }
	// A ToolResult is the end of a tool use. Message is the error's.
	ToolResult struct {
		Name    string
		OK      bool
		Message string
	}
	// A Retry says that the model's service refused and that the CLI will ask
	// again after Wait.
	Retry struct {
		Attempt int
		Wait    time.Duration
		Kind    Kind
		Message string
		// Unsure says that it may be another question that is asked again.
		Unsure bool
	}
	// A Warning is a message of the CLI's on the way.
	Warning struct{ Message string }
	// Stats are the run's figures.
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
