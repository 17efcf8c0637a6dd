package pool

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"pollux/internal/agent"
)

// runAlone answers a request with a process that ends after it. The caller must be one of
// p.tasks. If over is not nil, it is closed when the process has ended.
func (p *Pool) runAlone(ctx context.Context, req agent.Request, emit func(agent.Event)) (result agent.Result, over <-chan struct{}, err error) {
	program, err := p.Check(ctx, req.Source)
	if err == nil {
		err = fits(p.agent, req.Prompt)
	}
	if err == nil {
		err = req.Pace(ctx)
	}
	if err != nil {
		return agent.Result{}, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(agent.ErrClosed) })()
	w := p.newProcess(req.Source, program, key{source: p.agent.SourceKey(req.Source), dir: req.Dir})
	if p.agent.OneShot != nil {
		w.answersOnce(req.Model, p.most)
	}
	err = w.start(ctx, p.temp, p.limits.StartTimeout)
	if w.child != nil {
		result.Runner = agent.Spawned
	}
	if err != nil {
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
	u := p.unescaper(req, emit)
	req.Change = nil
	result, _, err = s.exchange(ctx, req, cmp.Or(req.Replay, req.Prompt), p.idle, u.send)
	u.flush()
	result.Runner, result.Answer, result.Narration = agent.Spawned, u.text(result.Answer), u.text(result.Narration)
	return result, ended, p.mute(err)
}

// An unescaper removes the escapes that the model quotes from the prompt.
type unescaper struct {
	emit     func(agent.Event)
	unescape func(string) string // nil if the text stays as it is
	held     string              // the end of the text so far, which may be the start of an escape
}

// unescaper returns one for a request. If the prompt itself contains escapes, the two cannot be
// distinguished, and nothing is unescaped.
func (p *Pool) unescaper(req agent.Request, emit func(agent.Event)) *unescaper {
	u := &unescaper{emit: emit}
	prompt := cmp.Or(req.Replay, req.Prompt)
	if p.agent.OneShot != nil && !req.Verbatim && p.agent.Escaped(prompt) && p.agent.Unescape(prompt) == prompt {
		u.unescape = p.agent.Unescape
	}
	return u
}

func (u *unescaper) text(s string) string {
	if u.unescape == nil {
		return s
	}
	return u.unescape(s)
}

// send emits an event. Escapes start with a backslash, and may be in two pieces.
func (u *unescaper) send(ev agent.Event) {
	if t, ok := ev.(agent.Text); ok && u.unescape != nil {
		text := u.held + t.Text
		whole := strings.TrimRight(text, `\`)
		u.held = text[len(whole):]
		if whole != "" {
			u.emit(agent.Text{Text: u.unescape(whole)})
		}
		return
	}
	u.flush()
	u.emit(ev)
}

// flush emits the text that send holds back.
func (u *unescaper) flush() {
	if u.held != "" {
		u.emit(agent.Text{Text: u.held})
		u.held = ""
	}
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
	if fault, ok := errors.AsType[*agent.Error](err); ok { // from [agent.Process.Command]
		return fault
	}
	message := p.agent.Tidy(from.Env, err.Error())
	switch {
	case errors.Is(err, errNoRoom):
		return err
	case errors.Is(err, errNotStarted):
		return p.agent.Error(agent.NotInstalled, message)
	case errors.Is(err, context.DeadlineExceeded):
		return p.agent.Error(agent.Stalled, message)
	}
	return p.agent.Error(cmp.Or(p.agent.KindOf(message), agent.Crashed), message)
}
