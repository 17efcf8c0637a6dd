// Package bridge lets any MCP client, and the shell, ask Gemini CLI: it
// queues calls, runs them under one deadline, falls back to another model, and
// says of each answer how it came about.
//
// A call goes through these hands: a tool ([Bridge.Query], [Bridge.Search],
// [Bridge.Structured]) checks its input and makes a prompt of it; [Bridge.ask]
// waits for a place in the queue and for the pace, has the [gemini.Runner] ask
// the CLI, and asks once more with the fallback model where that may help. The
// deadline of the call's context covers all of it.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
)

const (
	// DefaultTimeout and MaxTimeout bound a call, from its arrival to its
	// answer.
	DefaultTimeout = 2 * time.Minute
	MaxTimeout     = 30 * time.Minute
	// leastForAnother is how much of the deadline another attempt needs.
	leastForAnother = 10 * time.Second
	// patience is how long the CLI may wait to ask an overloaded model again,
	// in all. It would wait for minutes, and on a used-up quota for hours.
	patience = 8 * time.Second
)

// A Bridge asks Gemini CLI for its clients. Its methods may be called from
// many goroutines.
type Bridge struct {
	cfg       Config
	log       *slog.Logger
	runner    agent.Runner
	queue     *queue
	pacer     *pacer
	templates templates
	chunks    *chunkCache
	talks     *conversations
	started   time.Time

	life context.Context // ends when the bridge closes
	end  context.CancelCauseFunc
}

// New returns a bridge that asks the agent of cfg through runner. It returns an
// error if a prompt template of the user's is invalid. Once New has succeeded,
// the bridge owns the runner and [Bridge.Close] closes it.
func New(runner agent.Runner, cfg Config) (*Bridge, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	t, err := loadTemplates(cfg.Templates)
	if err != nil {
		return nil, err
	}
	b := &Bridge{
		cfg: cfg, log: cfg.Log, runner: runner, templates: t,
		queue: &queue{max: cfg.MaxConcurrent}, pacer: newPacer(cfg.StartInterval, cfg.StartJitter),
		chunks: newChunkCache(), talks: newConversations(runner.Forget), started: time.Now(),
	}
	b.life, b.end = context.WithCancelCause(context.Background())
	return b, nil
}

// Close ends all calls, those that wait too, and returns when no process is
// left of them.
func (b *Bridge) Close() error {
	b.end(agent.ErrClosed)
	return b.runner.Close()
}

// A Fallback says that another model was asked than the one named. Whether it
// answered is another matter.
type Fallback struct {
	From string `json:"from"`
	To   string `json:"to"`
	Why  string `json:"why"`
}

// Meta is how an answer came about; it is the _meta of a tool's result.
type Meta struct {
	// DurationMs is the time from the call to its answer, QueuedMs the part of
	// it before the CLI was started.
	DurationMs int64 `json:"durationMs"`
	QueuedMs   int64 `json:"queuedMs"`
	// Model is the one that answered, by the CLI's figures.
	Model string `json:"model"`
	// Partial says that the answer was cut short by the timeout, Truncated
	// that it was longer than Pollux takes.
	Partial   bool          `json:"partial"`
	Truncated bool          `json:"truncated,omitempty"`
	Tokens    *agent.Tokens `json:"tokens,omitempty"`
	ToolUses  int           `json:"toolUses,omitempty"`
	Fallback  *Fallback     `json:"fallback,omitempty"`
	// Repaired says that a structured answer was valid at the second attempt.
	Repaired bool `json:"repaired,omitempty"`
	// Runner is how the CLI was run: warm, or spawn for one that was started for
	// this call.
	Runner string `json:"runner,omitempty"`
	// SessionID is by what a query goes on with what was said.
	SessionID string `json:"sessionId,omitempty"`
}

// errTimeout is the cause of a call's end at its deadline.
var errTimeout = errors.New("timeout")

// A call is one tool call on its way.
type call struct {
	b        *Bridge
	dir      string
	model    string
	timeout  time.Duration
	start    time.Time
	progress *progress
	cancel   func()
	running  sync.WaitGroup // processes that work for the call
	verbatim bool           // answers are left as the model wrote them
	fellBack bool           // the text is that of the fallback model
	meta     Meta
}

// begin starts a call: its clock and its reports.
func (b *Bridge) begin(ctx context.Context, c Common, report func(string)) (context.Context, *call, error) {
	dir, err := workingDirectory(c.WorkingDirectory)
	if err != nil {
		return nil, nil, err
	}
	timeout := DefaultTimeout
	if c.Timeout != nil {
		timeout = time.Duration(*c.Timeout) * time.Millisecond
		if timeout <= 0 || timeout > MaxTimeout {
			return nil, nil, fmt.Errorf("timeout is %d: give milliseconds from 1 to %d", *c.Timeout, MaxTimeout.Milliseconds())
		}
	}
	model := strings.TrimSpace(c.Model)
	if model != "" && !modelName.MatchString(model) {
		return nil, nil, fmt.Errorf("model is %q, which is no model's name: give one like gemini-2.5-pro, or leave it out", shorten(model, 60))
	}
	if model == "" {
		model = b.cfg.DefaultModel
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	ctx, close := context.WithCancelCause(ctx)
	open := context.AfterFunc(b.life, func() { close(context.Cause(b.life)) })
	return ctx, &call{
		b: b, dir: dir, model: model, timeout: timeout, start: time.Now(),
		cancel:   func() { open(); close(nil); cancel() },
		progress: newProgress(report), meta: Meta{Model: model},
	}, nil
}

// end is called when the call has its answer.
func (c *call) end() Meta {
	c.cancel()
	c.progress.stop()
	c.meta.DurationMs = time.Since(c.start).Milliseconds()
	return c.meta
}

// wait returns when no process works for the call any more.
func (c *call) wait() error {
	gone := make(chan struct{})
	go func() {
		c.running.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(endTime):
		return errors.New("Gemini CLI does not end")
	}
}

// endTime is more than a process needs to end when it is made to.
const endTime = 15 * time.Second

// A Failure is a call that has no whole answer. Partial is what there was of
// it.
type Failure struct {
	Err     error
	Partial string
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// A question is what the CLI is asked.
type question struct {
	prompt string
	images []string
	// session names the conversation that it belongs to; replay is the prompt
	// with what was said before, where the CLI has that no more.
	session, replay string
	change          *agent.Change
}

// ask has the CLI answer. The error is a [*Failure] or the context's.
func (c *call) ask(ctx context.Context, q question) (agent.Result, error) {
	waited := time.Now()
	c.progress.now("queued")
	s, err := c.b.queue.acquire(ctx, func(n int) { c.progress.now("queued at place %d", n) })
	c.meta.QueuedMs += time.Since(waited).Milliseconds()
	if err != nil {
		return agent.Result{}, c.failure(err, agent.Result{})
	}
	defer s.release()
	model := c.model
	if c.meta.Fallback != nil { // an earlier turn had to
		model = c.meta.Fallback.To
	}
	result, err := c.attempt(ctx, s, q, model)
	var fault *agent.Error
	if errors.As(err, &fault) && fault.Kind.Overload() {
		to := c.b.cfg.FallbackModel
		deadline, _ := ctx.Deadline()
		if to != "" && to != model && to != result.Model && ctx.Err() == nil && time.Until(deadline) >= leastForAnother {
			from := model
			if from == "" {
				from = result.Model
			}
			if from == "" {
				from = "the default model"
			}
			c.meta.Fallback = &Fallback{From: from, To: to, Why: string(fault.Kind)}
			c.progress.now("%s: asking %s instead", fault.Kind, to)
			first := result
			result, err = c.attempt(ctx, s, q, to)
			if err != nil && result.Partial() == "" && first.Partial() != "" {
				result.Answer, result.Narration, result.Model = first.Answer, first.Narration, first.Model
				model = from
			} else {
				model = to
			}
		}
	}
	c.fellBack = c.meta.Fallback != nil && model == c.meta.Fallback.To && result.Partial() != ""
	c.count(result)
	if err != nil {
		return result, c.failure(err, result)
	}
	return result, nil
}

// attempt runs the CLI once.
func (c *call) attempt(ctx context.Context, s *slot, q question, model string) (agent.Result, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	s.hold()
	c.running.Add(1)
	req := agent.Request{
		Prompt: q.prompt, Images: q.images, Model: model, Dir: c.dir, Verbatim: c.verbatim,
		Session: q.session, Replay: q.replay, Change: q.change, Pace: c.pace,
		Released: func() { s.release(); c.running.Done() },
	}
	var retrying time.Duration
	return c.b.runner.Run(ctx, req, func(ev agent.Event) {
		c.progress.event(ev)
		if r, ok := ev.(agent.Retry); ok && !r.Unsure {
			retrying += r.Wait
			if retrying > patience {
				giveUp(&agent.Error{Kind: r.Kind, Message: r.Message})
			}
		}
	})
}

// pace returns when a CLI may be started.
func (c *call) pace(ctx context.Context) error {
	waited := time.Now()
	err := c.b.pacer.wait(ctx)
	c.meta.QueuedMs += time.Since(waited).Milliseconds()
	if err == nil {
		c.progress.now("starting Gemini CLI")
	}
	return err
}

// count adds a run's figures to the call's.
func (c *call) count(r agent.Result) {
	if r.Runner != "" {
		c.meta.Runner = r.Runner
	}
	if r.Model != "" {
		c.meta.Model = r.Model
	} else if c.meta.Fallback != nil {
		c.meta.Model = c.meta.Fallback.To
	}
	if r.Tokens != (agent.Tokens{}) {
		if c.meta.Tokens == nil {
			c.meta.Tokens = new(agent.Tokens)
		}
		c.meta.Tokens.Input += r.Tokens.Input
		c.meta.Tokens.Output += r.Tokens.Output
		c.meta.Tokens.Cached += r.Tokens.Cached
		c.meta.Tokens.Total += r.Tokens.Total
	}
	c.meta.ToolUses += r.Tools
	c.meta.Truncated = c.meta.Truncated || r.Truncated
}

// failure says what a call that did not get its answer came to.
func (c *call) failure(err error, r agent.Result) error {
	if errors.Is(err, errTimeout) {
		c.meta.Partial = r.Partial() != ""
		err = &timeoutError{c.timeout, time.Duration(c.meta.QueuedMs) * time.Millisecond, c.meta.Partial}
	}
	return &Failure{Err: err, Partial: r.Partial()}
}

// A timeoutError is a timeout, before the first word or after.
type timeoutError struct {
	timeout, queued time.Duration
	partial         bool
}

func (e *timeoutError) Error() string {
	s := fmt.Sprintf("timed out after %s without an answer", seconds(e.timeout))
	if e.partial {
		s = fmt.Sprintf("timed out after %s, before the answer was complete", seconds(e.timeout))
	}
	if e.queued >= time.Second {
		s += fmt.Sprintf(", %s of them in the queue", seconds(e.queued))
	}
	return s + fmt.Sprintf(": ask for less, or raise timeout (at most %d ms)", MaxTimeout.Milliseconds())
}

func (e *timeoutError) Is(target error) bool { return target == errTimeout }

func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%ds", int(d.Round(time.Second).Seconds()))
}

// partialPrefix stands before an answer that the timeout cut short.
func (c *call) partialPrefix() string {
	return fmt.Sprintf("[Partial response, timed out after %s]\n\n", seconds(c.timeout))
}
