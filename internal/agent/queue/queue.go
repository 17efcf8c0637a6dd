// Package queue decides which request to an agent may run next, and when.
//
// A quota belongs to an account, so everything that affects a quota is counted per
// account: how many requests run at the same time, how fast processes are started one
// after the other, and which models have used up their quota. Waiting callers take turns.
package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"pollux/internal/agent"
)

const (
	// minAttemptTimeout is the time that must be left for another attempt.
	minAttemptTimeout = 10 * time.Second
	// retryTimeout limits an agent's total wait before it asks an overloaded
	// model again. Agents wait for minutes, or for hours once a quota is used
	// up.
	retryTimeout = 8 * time.Second
)

// An Attempter asks an agent once, without waiting for others.
type Attempter interface {
	agent.Processes
	// Attempt asks a request's model once. Pace of the request is set. See
	// [agent.Runner] for the rest.
	Attempt(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error)
}

// A Runner is an [agent.Runner] that attempts a request when it is the request's turn. It
// also asks the fallback model of a request if the first model is overloaded.
//
// No lock is held when the attempter, a request's function or another package is
// called.
type Runner struct {
	Attempter
	agent  *agent.Explainer
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	accounts map[string]*account
}

// New returns a runner that asks an agent through an attempter, which Close closes too.
func New(row *agent.Explainer, attempter Attempter) *Runner {
	r := &Runner{Attempter: attempter, agent: row, accounts: make(map[string]*account)}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r
}

// Close implements [agent.Runner].
func (r *Runner) Close() error {
	r.cancel(agent.ErrClosed)
	return r.Attempter.Close()
}

// account returns the account of a source in a workspace.
func (r *Runner) account(from agent.Source, dir string) *account {
	id := r.agent.Account(from.Env, dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.accounts[id]
	if a == nil {
		a = newAccount(id)
		r.accounts[id] = a
	}
	return a
}

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	return r.RunFor(ctx, "", req, emit)
}

// RunFor is [Runner.Run] for one of several callers. Callers that wait take turns.
func (r *Runner) RunFor(ctx context.Context, caller string, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(agent.ErrClosed) })()

	q := &request{Runner: r, account: r.account(req.Source, req.Dir), req: req, emit: emit}
	emit(agent.Queued{})
	waited := time.Now()
	ticket, err := q.account.acquire(ctx, r.agent, caller, req.Queue, func(position int) { emit(agent.Queued{Position: position}) })
	q.queued = time.Since(waited)
	if err != nil {
		req.Release(nil, nil)
		return agent.Result{Queued: q.queued}, err
	}
	q.holds.Add(1)
	go func() {
		q.holds.Wait()
		q.account.release(ticket)
		req.Release(nil, nil)
	}()
	defer q.holds.Done()
	result, err := q.answer(ctx)
	result.Queued = q.queued
	return result, err
}

// A request is one whose turn it is.
type request struct {
	*Runner
	account *account
	req     agent.Request
	emit    func(agent.Event)
	queued  time.Duration
	holds   sync.WaitGroup // the attempt in progress, and processes that still work
}

// answer asks the agent. It uses the fallback model if the first model is overloaded, or
// is known to be.
func (q *request) answer(ctx context.Context) (agent.Result, error) {
	model, to := q.req.Model, q.req.Fallback
	if to == model {
		to = ""
	}
	if why := q.account.quota(model); to != "" && why != "" && q.account.quota(to) == "" {
		return q.fallBack(ctx, agent.Result{}, agent.Fallback{From: cmp.Or(model, "the default model"), To: to, Why: string(why)})
	}
	result, err := q.try(ctx, model)
	var fault *agent.Error
	if !errors.As(err, &fault) || !fault.Kind.Overload() {
		return result, err
	}
	if to == "" || to == result.Model || ctx.Err() != nil || !timeLeft(ctx) {
		return result, err
	}
	from := cmp.Or(model, result.Model, "the default model")
	return q.fallBack(ctx, result, agent.Fallback{From: from, To: to, Why: string(fault.Kind)})
}

// timeLeft reports whether another attempt is worth its start.
func timeLeft(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= minAttemptTimeout
}

// fallBack asks the fallback model. If it has nothing to say, the text of the first
// attempt remains.
func (q *request) fallBack(ctx context.Context, first agent.Result, f agent.Fallback) (agent.Result, error) {
	q.emit(agent.FellBack{Fallback: f})
	result, err := q.try(ctx, f.To)
	if err != nil && result.Partial() == "" && first.Partial() != "" {
		result.Answer, result.Narration, result.Model = first.Answer, first.Narration, first.Model
	} else {
		result.FromFallback = result.Partial() != ""
	}
	result.Fallback = &f
	return result, err
}

// try asks one model.
func (q *request) try(ctx context.Context, model string) (agent.Result, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	q.holds.Add(1)
	req := q.req
	req.Model, req.Released, req.Pace = model, q.holds.Done, q.pace
	var retrying time.Duration
	result, err := q.Attempt(ctx, req, func(ev agent.Event) {
		q.emit(ev)
		if r, ok := ev.(agent.Retry); ok && !r.Unsure {
			retrying += r.Wait
			if retrying > retryTimeout {
				giveUp(q.agent.Error(r.Kind, r.Message))
			}
		}
	})
	q.learn(model, result, err)
	return result, err
}

// learn remembers what an attempt said about quotas.
func (q *request) learn(model string, result agent.Result, err error) {
	var fault *agent.Error
	switch {
	case err == nil:
		q.account.answered(model, result.Model)
	case errors.As(err, &fault) && (fault.Kind == agent.QuotaDay || fault.Kind == agent.QuotaMinute):
		reset := time.Duration(0)
		if q.agent.ResetAfter != nil {
			reset = q.agent.ResetAfter(fault.Message)
		}
		q.account.refused(fault.Kind, reset, model, result.Model)
	}
}

// pace waits until a process may be started for the request.
func (q *request) pace(ctx context.Context) error {
	waited := time.Now()
	err := q.account.starts.wait(ctx, q.req.Queue.StartInterval, q.req.Queue.StartJitter)
	q.queued += time.Since(waited)
	if err == nil {
		q.emit(agent.Starting{})
	}
	return err
}

// Load describes the queue of one account.
type Load struct {
	// Account is an opaque name of the account.
	Account string `json:"account"`
	// Running requests have their turn, Waiting ones do not. At most Limit run.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	Limit   int `json:"limit"`
	// Callers says who waits, in the order of their next turn.
	Callers []Waiting `json:"callers,omitempty"`
	// UsedUp lists the models whose quota is used up, by name. "" is the agent's
	// default model.
	UsedUp []UsedUp `json:"usedUp,omitempty"`
}

// Waiting describes the waiting requests of one caller.
type Waiting struct {
	Caller   string    `json:"caller"`
	Requests int       `json:"requests"`
	Since    time.Time `json:"since"` // the oldest request
}

// UsedUp describes a model whose quota is used up.
type UsedUp struct {
	Model string     `json:"model"`
	Kind  agent.Kind `json:"kind"`
	Until time.Time  `json:"until"`
}

// Loads describes the queues of all accounts that are in use, or have a model whose
// quota is used up.
func (r *Runner) Loads() []Load {
	r.mu.Lock()
	all := make([]*account, 0, len(r.accounts))
	for _, a := range r.accounts {
		all = append(all, a)
	}
	r.mu.Unlock()
	loads := []Load{}
	for _, a := range all {
		if l := a.load(); l.Running+l.Waiting+len(l.UsedUp) > 0 {
			loads = append(loads, l)
		}
	}
	slices.SortFunc(loads, func(a, b Load) int { return cmp.Compare(a.Account, b.Account) })
	return loads
}
