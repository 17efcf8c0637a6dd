package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/outbox"
)

// quietInterval is how long a request must have had no news since a retry
// was announced, to count as the request that is retried.
const quietInterval = time.Second

// An attempt is a request that a process works on.
type attempt struct {
	files agent.Files   // the files that the tools write to; nil unless in change mode
	wake  outbox.Signal // set if something has changed

	mu         sync.Mutex // guards the fields below
	transcript *agent.Transcript
	events     []agent.Event // not yet emitted
	news       time.Time     // when something last arrived
	written    int           // the number of writes to files
	looping    bool          // it repeats a web search
	over       bool          // it has an answer
}

func newAttempt(row *agent.Agent, env agent.Env, change bool) *attempt {
	a := &attempt{wake: outbox.NewSignal(), news: time.Now()}
	a.transcript = agent.NewTranscript(row, env, change, func(ev agent.Event) { a.events = append(a.events, ev) })
	return a
}

// change calls f, which may change the attempt, and wakes the goroutine that waits
// for news.
func (a *attempt) change(f func()) {
	a.mu.Lock()
	f()
	a.mu.Unlock()
	a.wake.Set()
}

// takeEvents returns the events since the last call.
func (a *attempt) takeEvents() []agent.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	events := a.events
	a.events = nil
	return events
}

func (a *attempt) result() agent.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.transcript.Result()
}

// exchange sends a prompt and waits for the end of the attempt. It calls emit in this
// goroutine. ended is nil if the prompt was not sent. Otherwise it is closed
// when the agent no longer works on it.
func (s *session) exchange(ctx context.Context, req agent.Request, prompt string, idle time.Duration, emit func(agent.Event)) (result agent.Result, ended <-chan struct{}, err error) {
	w := s.w
	if w.how.Prompt != nil {
		prompt = w.how.Prompt(prompt)
	}
	if w.once() { // the escapes count
		if err := fits(w.agent, prompt); err != nil {
			return agent.Result{}, nil, err
		}
	}
	content, err := content(req, prompt)
	if err != nil {
		return agent.Result{}, nil, err
	}
	if req.Schema != nil && w.how.TakesSchema {
		content = append(content, agent.Content{Type: "schema", Text: string(req.Schema)})
	}
	if model := cmp.Or(req.Model, s.initial); model != "" && model != s.model {
		setting, cancel := context.WithTimeoutCause(ctx, w.timeout, errMute)
		err := w.conn.SetModel(setting, s.id, model)
		cancel()
		if err != nil {
			return agent.Result{}, nil, w.failure(ctx, err)
		}
		s.model = model
	}
	if fault := w.fault(); fault != nil {
		return agent.Result{}, nil, fault
	}
	a := newAttempt(w.agent, req.Source.Env, w.key.change)
	a.transcript.SetModel(req.Model)
	if w.key.change {
		a.files = req.Change.Files()
	}
	w.mu.Lock()
	w.attempts[s.id] = a
	w.mu.Unlock()
	var reply agent.PromptResult
	answered := make(chan error, 1)
	over := make(chan struct{})
	working, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(over)
		defer cancel()
		var err error
		reply, err = w.conn.Prompt(working, s.id, content)
		w.readErrors()
		answered <- err
		w.mu.Lock()
		delete(w.attempts, s.id)
		w.mu.Unlock()
		a.mu.Lock()
		a.over = true
		a.mu.Unlock()
	}()
	if !w.once() { // which starts only now, and reports agent.Begun
		emit(agent.Started{})
	}
	interval := time.Second
	if w.logs != nil {
		interval = logInterval
	}
	look := time.NewTicker(interval)
	defer look.Stop()
	for {
		for _, ev := range a.takeEvents() {
			emit(ev)
		}
		select {
		case <-a.wake:
		case <-look.C:
		case err := <-answered:
			for _, ev := range a.takeEvents() {
				emit(ev)
			}
			result, err = w.conclude(a, s.model, reply, err, idle)
			return result, over, err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if fault := w.failed(a, idle); err == nil && fault != nil {
			err = fault
		}
		if err != nil {
			cancel()
			return a.result(), over, err
		}
	}
}

// content returns a prompt with the images of its request.
func content(req agent.Request, prompt string) ([]agent.Content, error) {
	content := []agent.Content{{Type: "text", Text: prompt}}
	if len(req.Images) == 0 {
		return content, nil
	}
	root, err := os.OpenRoot(req.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, name := range req.Images {
		data, err := root.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: name another image", name)
		}
		content = append(content, agent.Content{Type: "image", Path: name, Data: data, MIMEType: mime.TypeByExtension(strings.ToLower(filepath.Ext(name)))})
	}
	return content, nil
}

// readErrors reads the rest of what the process has written about an attempt.
func (w *process) readErrors() {
	w.logs.read()
	if w.once() && isClosed(w.child.Done()) { // otherwise it has answered, but does not exit
		w.readers.Wait()
	}
}

// fault returns an error if the process ignores its policy, or prints too much.
func (w *process) fault() *agent.Error {
	w.logs.read()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unenforced {
		return w.agent.Error(agent.Unenforceable, "it does not follow its policy")
	}
	if w.floods() {
		return w.agent.Error(agent.TooMuchOutput, fmt.Sprintf("over %d MiB", w.most>>20))
	}
	return nil
}

// failed returns an error if the attempt must end.
func (w *process) failed(a *attempt, idle time.Duration) *agent.Error {
	if fault := w.fault(); fault != nil {
		return fault
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.transcript.Fault(a.looping, a.news, idle)
}

// conclude returns the result of a finished attempt. selected is the selected model.
func (w *process) conclude(a *attempt, selected string, reply agent.PromptResult, err error, idle time.Duration) (agent.Result, error) {
	if fault := w.fault(); fault != nil {
		return a.result(), fault
	}
	model, tokens := w.how.Usage(reply.Raw)
	a.mu.Lock()
	if model == "" && tokens.Total > 0 {
		model = selected
	}
	a.transcript.SetUsage(model, tokens)
	result := a.transcript.Result()
	a.news = time.Now() // the answer
	a.mu.Unlock()
	if fault := w.failed(a, idle); fault != nil {
		return result, fault
	}
	if w.once() && (err != nil || w.exitCode() != 0) {
		return result, w.ended(reply.Message)
	}
	kind, message := agent.Kind(""), ""
	switch {
	case err != nil:
		return result, w.failure(context.Background(), err)
	case reply.StopReason == agent.StoppedMaxTurns:
		kind = agent.TurnLimit
	case reply.StopReason == agent.StoppedRefusal:
		kind = agent.Blocked
	case reply.StopReason == agent.StoppedCancelled:
		kind, message = agent.Failed, "it cancelled the request itself"
	case result.Answer == "" && result.Narration != "":
		kind, message = agent.Empty, "it ended after a tool use"
	case result.Answer == "":
		kind, message = agent.Empty, w.agent.Tidy(w.source.Env, reply.Message)
	default:
		return result, nil
	}
	return result, w.agent.Error(kind, message)
}

// failure returns the error of a call: the error response, [errMute],
// [context.Cause], or a crash.
func (w *process) failure(ctx context.Context, err error) error {
	var refused *agent.Refused
	switch {
	case errors.As(err, &refused):
		return w.how.Failure(w.source.Env, refused.Code, refused.Message, w.unlinked)
	case errors.Is(err, errMute):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return w.agent.Error(agent.Crashed, w.cause())
}

// exitCode returns the exit code of a process that has ended, and 0 for another one.
func (w *process) exitCode() int {
	if !isClosed(w.child.Done()) {
		return 0
	}
	return w.child.ExitCode()
}

// ended returns the error of a [agent.Driver.OneShot] process. message is its last error.
func (w *process) ended(message string) *agent.Error {
	w.mu.Lock()
	stderr := string(w.errText)
	w.mu.Unlock()
	return w.how.Ended(w.source.Env, w.exitCode(), message, stderr)
}

// attempt returns the attempt of a session, or nil.
func (w *process) attempt(session string) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.attempts[session]
}

// Update implements [agent.Client].
func (w *process) Update(u agent.Update) {
	a := w.attempt(u.Session)
	if a == nil {
		return
	}
	a.change(func() {
		a.news = time.Now()
		a.transcript.Update(w.how, u, a.news)
		if w.key.change && a.transcript.Writes() > a.written {
			a.transcript.Stray(w.agent.WriteTools[0] + ", to the disk")
		}
	})
}

var errNoAttempt = errors.New("no prompt is running in this session")

// ReadFile implements [agent.Client].
func (w *process) ReadFile(session, path string) (string, error) {
	a := w.attempt(session)
	if a == nil {
		return "", errNoAttempt
	}
	return a.files.Read(path)
}

// WriteFile implements [agent.Client].
func (w *process) WriteFile(session, path, text string) error {
	a := w.attempt(session)
	if a == nil {
		return errNoAttempt
	}
	a.change(func() { a.written++ })
	return a.files.Write(path, text)
}

// endSearch ends the attempt with the oldest running web search.
func endSearch(attempts []*attempt) {
	var oldest *attempt
	var most time.Duration
	for _, a := range attempts {
		a.mu.Lock()
		if longest, running := a.transcript.Searching(time.Now()); running && longest >= most {
			oldest, most = a, longest
		}
		a.mu.Unlock()
	}
	if oldest != nil {
		oldest.change(func() { oldest.looping = true })
	}
}

// announce reports a retry to the attempt that it belongs to. The agent does not
// say which one that is. If there are several attempts, it may be any without news
// for a while.
func announce(r agent.Retry, attempts []*attempt) {
	now := time.Now()
	if len(attempts) == 1 {
		attempts[0].change(func() { attempts[0].transcript.Emit(r) })
		return
	}
	time.AfterFunc(quietInterval, func() {
		var silent []*attempt
		for _, a := range attempts {
			a.mu.Lock()
			if a.news.Before(now) && !a.over {
				silent = append(silent, a)
			}
			a.mu.Unlock()
		}
		r.Unsure = len(silent) > 1
		for _, a := range silent {
			a.change(func() { a.transcript.Emit(r) })
		}
	})
}
