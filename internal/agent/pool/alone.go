package pool

import (
	"cmp"
	"context"
	"errors"

	"pollux/internal/agent"
)

// runAlone answers a request with a process that ends after it. The caller must be one of
// p.tasks. If over is not nil, it is closed when the process has ended.
func (p *Pool) runAlone(ctx context.Context, req agent.Request, emit func(agent.Event)) (result agent.Result, over <-chan struct{}, err error) {
	program, err := p.Check(ctx, req.Source)
	if err == nil {
		err = p.fits(req)
	}
	if err == nil {
		err = req.Pace(ctx)
	}
	if err != nil {
		return agent.Result{}, nil, err
	}
	if p.agent.OneShot.Command != nil {
		return p.runOnce(ctx, program, req, emit)
	}
	result.Runner = agent.Spawned
	w := p.newProcess(req.Source, program, key{source: p.agent.SourceKey(req.Source), dir: req.Dir})
	if err := w.start(ctx, p.temp, p.limits.StartTimeout); err != nil {
		return result, nil, p.startFailure(ctx, req.Source, err)
	}
	ended := make(chan struct{})
	defer p.tasks.Go(func() {
		defer close(ended)
		w.stop()
		w.cleanUp()
	})
	s, err := w.session(ctx)
	if err != nil {
		return result, ended, p.mute(w.failure(ctx, err))
	}
	req.Change = nil
	result, _, err = s.exchange(ctx, req, cmp.Or(req.Replay, req.Prompt), p.idle, emit)
	result.Runner = agent.Spawned
	return result, ended, p.mute(err)
}

// mute describes [errMute] in terms of the agent.
func (p *Pool) mute(err error) error {
	if errors.Is(err, errMute) {
		return p.agent.Error(agent.Stalled, err.Error())
	}
	return err
}

// startFailure returns the error for a process that did not start.
func (p *Pool) startFailure(ctx context.Context, from agent.Source, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if fault, ok := errors.AsType[*agent.Error](err); ok { // from [agent.Warm.Command]
		return fault
	}
	message := p.agent.Tidy(from.Env, err.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		return p.agent.Error(agent.Stalled, message)
	}
	return p.agent.Error(cmp.Or(p.agent.KindOf(message), agent.Crashed), message)
}
