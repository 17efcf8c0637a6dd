// Package bridge lets MCP clients and the shell ask agents. It runs each call under one
// deadline and reports how the answer was produced. It knows agents only through their row
// in the table of agents and their [agent.Runner].
//
// How a call flows: [Bridge.Ask] checks the [Input] of a tool, which writes a prompt.
// call.request lets the runner ask the agent. The runner waits for the call's turn, and asks
// again with the fallback model if the first one is overloaded. The call's deadline covers
// all of this.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/agent"
)

const (
	// DefaultTimeout and MaxTimeout limit the time from the arrival of a call to
	// its answer.
	DefaultTimeout = 2 * time.Minute
	MaxTimeout     = 30 * time.Minute
	// minAttemptTimeout is the time that must be left for another attempt.
	minAttemptTimeout = 10 * time.Second
	// queueTimeout is how long a call waits for its turn. A job waits until its
	// deadline.
	queueTimeout = 30 * time.Second
	// exitTimeout is how long a process may take to exit.
	exitTimeout = 15 * time.Second
)

// A Bridge asks agents on behalf of clients. Its methods may be called from
// several goroutines.
//
// Lock order: jobs.mu, then job.mu. No other lock of the package is held when
// another lock is taken, or when the runner or a client is called.
type Bridge struct {
	cfg           Config
	agents        []*asked // the first one is that of the configuration
	templates     templates
	chunks        *chunkCache
	conversations *conversations
	started       time.Time

	life context.Context // ends when the bridge closes
	end  context.CancelCauseFunc
	work sync.WaitGroup // calls and the status listener

	// running and waiting count the requests that have their turn and that wait for it.
	running, waiting atomic.Int64

	mu sync.Mutex // orders work.Add before work.Wait
}

// New returns a bridge that asks the agent of cfg through runner, and the others through
// the runners that cfg opens. If runner is nil, cfg opens that one, too. New returns an error
// if a prompt template of the user is invalid. If New succeeds, the bridge owns the runners,
// and [Bridge.Close] closes them.
func New(runner agent.Runner, cfg Config) (*Bridge, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Names == nil {
		cfg.Names = &toolNames
	}
	t, err := loadTemplates(cfg.Templates, cfg.Agent.VarPrefix+"PROMPTS_DIR")
	if err != nil {
		return nil, err
	}
	b := &Bridge{cfg: cfg, templates: t, chunks: newChunkCache(), started: time.Now()}
	for _, a := range append([]Asked{cfg.Asked}, cfg.Others...) {
		b.agents = append(b.agents, &asked{Asked: a, cfg: &b.cfg})
	}
	b.agents[0].runner = runner
	b.conversations = newConversations(b.agents, cfg)
	b.life, b.end = context.WithCancelCause(context.Background())
	return b, nil
}

// startAhead starts a process for a workspace before the first question of a client, unless
// each question gets its own.
func (b *Bridge) startAhead(dir, client string) {
	if b.cfg.Kind == agent.Spawned || checkDepth() != nil {
		return
	}
	a, err := b.pick(Common{client: client}, false)
	if err != nil || !a.usable() {
		return
	}
	if r, err := a.run(); err == nil {
		r.Ahead(a.Source, dir)
	}
}

// Close cancels all calls, including those in the queue. It returns when they
// have ended and their processes have exited.
func (b *Bridge) Close() error {
	b.mu.Lock()
	b.end(agent.ErrClosed)
	b.mu.Unlock()
	var closing sync.WaitGroup
	errs := make([]error, len(b.agents))
	for i, a := range b.agents {
		closing.Go(func() { errs[i] = a.close() })
	}
	closing.Wait()
	b.work.Wait()
	return errors.Join(errs...)
}

// enter adds a call to b.work. It returns an error if the bridge is closed.
func (b *Bridge) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := context.Cause(b.life); err != nil {
		return err
	}
	b.work.Add(1)
	return nil
}

// Meta describes how an answer was produced. It is the _meta of a tool result.
type Meta struct {
	// DurationMs is the time from the call to its answer. QueuedMs is the part
	// of it before the agent got the prompt.
	DurationMs int64 `json:"durationMs"`
	QueuedMs   int64 `json:"queuedMs"`
	// Agent is the name of the agent that was asked, if there are several.
	Agent string `json:"agent,omitempty"`
	// Model is the model that answered, as reported by the agent.
	Model string `json:"model"`
	// Partial reports whether the timeout cut the answer short. Truncated
	// reports whether the answer exceeded [agent.MaxAnswer].
	Partial   bool            `json:"partial"`
	Truncated bool            `json:"truncated,omitempty"`
	Tokens    *agent.Tokens   `json:"tokens,omitempty"`
	ToolUses  int             `json:"toolUses,omitempty"`
	Fallback  *agent.Fallback `json:"fallback,omitempty"`
	// Repaired reports whether a structured answer became valid only on the
	// second attempt.
	Repaired bool `json:"repaired,omitempty"`
	// Runner is [agent.Warmed], or [agent.Spawned] for a process that was started
	// for this call.
	Runner string `json:"runner,omitempty"`
	// SessionID continues the conversation in another query. It may be empty.
	SessionID string `json:"sessionId,omitempty"`
}

// errTimeout is the cause of the context of a call that reaches its deadline.
var errTimeout = errors.New("timeout")

// A call is a tool call in progress.
type call struct {
	b        *Bridge
	agent    *asked
	client   string // the name of the MCP client, or ""
	runner   agent.Runner
	dir      string
	model    string
	timeout  time.Duration
	start    time.Time
	progress *progress
	emit     func(agent.Event) // see [Common.Emit]; may be nil
	cancel   func()
	cause    func() error   // why the context ended, if it did
	running  sync.WaitGroup // processes that work for the call
	fellBack bool           // the fallback model wrote the text
	asked    bool           // an agent's process was reached
	refused  *agent.Retry   // the last announcement, if nothing has arrived since
	meta     Meta
}

// An InputError says what is wrong with the input of a call.
type InputError struct{ error }

func (e InputError) Unwrap() error { return e.error }

// check checks the input of a call. It returns the call, which has not begun. The error is an
// [InputError], unless no agent may be asked here.
func (b *Bridge) check(in Input) (*call, error) {
	if err := checkDepth(); err != nil {
		return nil, err
	}
	c, err := b.callFor(in)
	if err != nil {
		return nil, InputError{err}
	}
	return c, nil
}

func (b *Bridge) callFor(in Input) (*call, error) {
	if err := in.check(b); err != nil {
		return nil, err
	}
	common, names := in.common(), b.cfg.Names
	a, err := b.pick(common, in.searches())
	if err != nil {
		return nil, err
	}
	dir, err := workingDirectory(common.WorkingDirectory)
	if err != nil {
		return nil, fmt.Errorf("%s %w", names.Dir, err)
	}
	timeout := DefaultTimeout
	if common.Timeout != nil {
		timeout = time.Duration(*common.Timeout) * time.Millisecond
		if timeout <= 0 || timeout > MaxTimeout {
			return nil, fmt.Errorf("%s is %d: give milliseconds from 1 to %d",
				names.Timeout, *common.Timeout, MaxTimeout.Milliseconds())
		}
	}
	model := cmp.Or(strings.TrimSpace(common.Model), a.DefaultModel)
	if model != "" && !agent.ValidModel(model) {
		return nil, fmt.Errorf("%s is %q, which is not a valid model name: give one such as %s, or "+
			"leave it out", names.Model, agent.Shorten(model, 60), a.Agent.ExampleModel)
	}
	return &call{b: b, agent: a, client: common.client, dir: dir, model: model, timeout: timeout, emit: common.Emit, meta: Meta{Model: model}}, nil
}

// begin starts a call with its deadline and its progress reports. The caller must call
// call.end.
func (b *Bridge) begin(ctx context.Context, in Input, report func(string)) (context.Context, *call, error) {
	c, err := b.check(in)
	if err != nil {
		return nil, nil, err
	}
	if err := c.choose(c.agent); err != nil {
		return nil, nil, err
	}
	if err := b.enter(); err != nil {
		return nil, nil, err
	}
	c.start = time.Now()
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.life, func() { cancel(context.Cause(b.life)) })
	c.cancel = func() { stop(); cancel(nil); cancelTimeout() }
	c.cause = func() error { return context.Cause(ctx) }
	c.progress = newProgress(c.agent.Agent, report)
	return ctx, c, nil
}

// use replaces the agent that begin has chosen. The name may be empty.
func (c *call) use(name string) error {
	if name == "" || name == c.agent.Agent.Name {
		return nil
	}
	before := c.agent
	a, err := c.b.pick(Common{Agent: name}, false)
	if err == nil {
		err = c.choose(a)
	}
	if err != nil {
		return err
	}
	if c.model == before.DefaultModel {
		c.model = a.DefaultModel
	}
	c.progress.row, c.meta.Model = a.Agent, c.model
	return nil
}

// choose sets the agent of the call. If there are several, the call's _meta names it.
func (c *call) choose(a *asked) error {
	runner, err := a.run()
	if err != nil {
		return err
	}
	c.agent, c.runner = a, runner
	if len(c.b.agents) > 1 {
		c.meta.Agent = a.Agent.Name
	}
	return nil
}

// end ends the call and returns how its answer was produced. err is the error of
// the call.
func (c *call) end(err error) Meta {
	defer c.b.work.Done()
	kind := c.errorKind(err) // before the context ends
	c.cancel()
	c.progress.stop()
	c.meta.DurationMs = time.Since(c.start).Milliseconds()
	if c.b.cfg.Record != nil {
		c.b.cfg.Record(c.usage(kind))
	}
	return c.meta
}

// wait waits until no process works for the call.
func (c *call) wait() error {
	exited := make(chan struct{})
	go func() {
		c.running.Wait()
		close(exited)
	}()
	select {
	case <-exited:
		return nil
	case <-time.After(exitTimeout):
		return fmt.Errorf("%s has not exited", c.agent.Agent.DisplayName)
	}
}

// A Failure is a call without a complete answer. Partial is the text that had
// arrived.
type Failure struct {
	Err     error
	Partial string
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// A question is a question to the agent. See [agent.Request] for its fields.
type question struct {
	prompt               string
	images               []string
	conversation, replay string
	schema               []byte
	change               *agent.Change
}

// request asks the agent. The error is a [*Failure].
func (c *call) request(ctx context.Context, q question) (agent.Result, error) {
	model := c.model
	if c.meta.Fallback != nil { // an earlier question of the call fell back
		model = c.meta.Fallback.To
	}
	c.running.Add(1)
	cfg := c.b.cfg
	req := agent.Request{
		Prompt: q.prompt, Images: q.images, Model: model, Fallback: c.agent.FallbackModel, Dir: c.dir, Verbatim: q.change != nil, Source: c.agent.Source,
		Conversation: q.conversation, Replay: q.replay, Schema: q.schema, Change: q.change, Spawn: cfg.Kind == agent.Spawned,
		Queue: agent.Queue{
			Limit: cfg.MaxConcurrent, Timeout: queueTimeout,
			StartInterval: cfg.StartInterval, StartJitter: cfg.StartJitter,
		},
		Released: c.running.Done,
	}
	if ctx.Value(jobKey{}) != nil {
		req.Queue.Timeout = MaxTimeout
	}
	counted := &c.b.waiting // where the request is counted
	counted.Add(1)
	result, err := c.runner.Run(ctx, req, func(ev agent.Event) {
		if _, started := ev.(agent.Started); started {
			c.asked = true // also if the result comes too late to say so
		}
		if _, queued := ev.(agent.Queued); !queued && counted == &c.b.waiting {
			c.b.running.Add(1)
			counted.Add(-1)
			counted = &c.b.running
		}
		switch ev := ev.(type) {
		case agent.Retry:
			c.refused = &ev
		case agent.Text, agent.ToolUse, agent.FellBack:
			c.refused = nil
		}
		c.progress.event(ev)
		if c.emit != nil {
			c.emit(ev)
		}
	})
	counted.Add(-1)
	c.asked = c.asked || err == nil || result.Runner != ""
	c.meta.QueuedMs += result.Queued.Milliseconds()
	c.meta.Fallback = cmp.Or(result.Fallback, c.meta.Fallback)
	c.fellBack = c.meta.Fallback != nil && result.Partial() != "" && (result.Fallback == nil || result.FromFallback)
	c.count(result)
	if err != nil {
		return result, c.failure(err, result)
	}
	return result, nil
}

// count adds the statistics of a run to the call's.
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
		*c.meta.Tokens = c.meta.Tokens.Add(r.Tokens)
	}
	c.meta.ToolUses += r.Tools
	c.meta.Truncated = c.meta.Truncated || r.Truncated
}

// failure returns the [*Failure] of a call with the text that had arrived. If a
// variable may be missing because the client withheld it, the error says so. If no agent is
// installed, it names all of them.
func (c *call) failure(err error, r agent.Result) error {
	if fault, ok := errors.AsType[*agent.Error](err); ok {
		if fault.Kind == agent.NotInstalled {
			err = c.b.OrOthers(c.agent.Agent, err)
		}
		for _, a := range c.b.agents {
			if more := a.Agent.Withholds[fault.Kind]; more != "" && a.Agent.IsClient(c.client) {
				err = fmt.Errorf("%w. %s", err, more)
			}
		}
	}
	if errors.Is(err, errTimeout) {
		c.meta.Partial = r.Partial() != ""
		err = c.timedOut()
	}
	return &Failure{Err: err, Partial: r.Partial()}
}

// timedOut returns the error of a call that reached its deadline. It is errTimeout.
func (c *call) timedOut() error {
	text := fmt.Sprintf("timed out after %s without an answer", seconds(c.timeout))
	if c.meta.Partial {
		text = fmt.Sprintf("timed out after %s, before the answer was complete", seconds(c.timeout))
	}
	if queued := time.Duration(c.meta.QueuedMs) * time.Millisecond; queued >= time.Second {
		text += fmt.Sprintf(", %s of that in the queue", seconds(queued))
	}
	names := c.b.cfg.Names
	next := fmt.Sprintf("ask for less, or raise %s (at most %s)", names.Timeout, names.Duration(MaxTimeout))
	if c.refused != nil {
		refusal := c.agent.Agent.Error(c.refused.Kind, c.refused.Message)
		text, next = text+", because "+refusal.What(), refusal.Next()
	}
	return timeoutError(text + ": " + next)
}

type timeoutError string

func (e timeoutError) Error() string { return string(e) }

func (timeoutError) Is(target error) bool { return target == errTimeout }

// seconds returns a duration in seconds, or in milliseconds if it is shorter.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%ds", int(d.Round(time.Second).Seconds()))
}
