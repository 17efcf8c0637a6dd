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

const (
	// searchTimeout is how long a web search may take.
	searchTimeout = 60 * time.Second
	// quietInterval is how long a request must have had no news since a retry
	// was announced, to count as the request that is retried.
	quietInterval = time.Second
)

// A turn is a request that a process works on.
type turn struct {
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

func newTurn(row *agent.Agent, env agent.Env, change bool) *turn {
	t := &turn{wake: outbox.NewSignal(), news: time.Now()}
	t.transcript = agent.NewTranscript(row, env, change, func(ev agent.Event) { t.events = append(t.events, ev) })
	return t
}

// change calls f, which may change the turn, and wakes the goroutine that waits
// for news.
func (t *turn) change(f func()) {
	t.mu.Lock()
	f()
	t.mu.Unlock()
	t.wake.Set()
}

// takeEvents returns the events since the last call.
func (t *turn) takeEvents() []agent.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	return events
}

func (t *turn) result() agent.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.transcript.Result()
}

// prompt sends a prompt and waits for the end of the turn. It calls emit in this
// goroutine. ended is nil if the prompt was not sent. Otherwise it is closed
// when the agent no longer works on it.
func (s *session) prompt(ctx context.Context, req agent.Request, prompt string, idle time.Duration, emit func(agent.Event)) (result agent.Result, ended <-chan struct{}, err error) {
	w := s.w
	content, err := content(req, w.agent.Warm.Prompt(prompt))
	if err != nil {
		return agent.Result{}, nil, err
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
	t := newTurn(w.agent, req.Source.Env, w.key.change)
	t.transcript.SetModel(req.Model)
	if w.key.change {
		t.files = req.Change.Files()
	}
	w.mu.Lock()
	w.turns[s.id] = t
	w.mu.Unlock()
	var reply agent.PromptResult
	answered := make(chan error, 1)
	over, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		var err error
		reply, err = w.conn.Prompt(s.id, content, sent)
		w.logFile.read() // for what it says about this turn
		answered <- err
		w.mu.Lock()
		delete(w.turns, s.id)
		w.mu.Unlock()
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
	}()
	emit(agent.Started{})
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		for _, ev := range t.takeEvents() {
			emit(ev)
		}
		select {
		case <-t.wake:
		case <-look.C:
		case err := <-answered:
			for _, ev := range t.takeEvents() {
				emit(ev)
			}
			result, err = w.conclude(t, s.model, reply, err)
			return result, over, err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if fault := w.turnFault(t, idle); err == nil && fault != nil {
			err = fault
		}
		if err != nil {
			w.conn.Cancel(s.id, sent)
			return t.result(), over, err
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
		content = append(content, agent.Content{Type: "image", Data: data, MIMEType: mime.TypeByExtension(strings.ToLower(filepath.Ext(name)))})
	}
	return content, nil
}

// fault returns an error if the process ignores its policy.
func (w *process) fault() *agent.Error {
	w.logFile.read()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unenforced {
		return w.agent.Error(agent.Unenforceable, "it does not follow its policy")
	}
	return nil
}

// turnFault returns an error if the turn must end.
func (w *process) turnFault(t *turn, idle time.Duration) *agent.Error {
	if fault := w.fault(); fault != nil {
		return fault
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if strayed := t.transcript.Strayed(); strayed != "" {
		return w.agent.Error(agent.Strayed, strayed)
	}
	if t.looping {
		return w.agent.Error(agent.SearchQuota, "")
	}
	if longest, _ := t.transcript.Searching(time.Now()); longest > searchTimeout {
		return w.agent.Error(agent.Stalled, fmt.Sprintf("a web search had no answer for %s", searchTimeout))
	}
	if time.Since(t.news) > idle {
		return w.agent.Error(agent.Stalled, fmt.Sprintf("no output for %s", idle))
	}
	return nil
}

// conclude returns the result of a finished turn. selected is the selected model.
func (w *process) conclude(t *turn, selected string, reply agent.PromptResult, err error) (agent.Result, error) {
	if fault := w.fault(); fault != nil {
		return t.result(), fault
	}
	model, tokens := w.agent.Warm.Usage(reply.Raw)
	t.mu.Lock()
	if model == "" && tokens.Total > 0 {
		model = selected
	}
	t.transcript.SetUsage(model, tokens)
	result, strayed := t.transcript.Result(), t.transcript.Strayed()
	t.mu.Unlock()
	kind, message := agent.Kind(""), ""
	switch {
	case err != nil:
		return result, w.failure(context.Background(), err)
	case strayed != "":
		kind, message = agent.Strayed, strayed
	case reply.StopReason == agent.StoppedMaxTurns:
		kind = agent.TurnLimit
	case reply.StopReason == agent.StoppedRefusal:
		kind = agent.Blocked
	case reply.StopReason == agent.StoppedCancelled:
		kind, message = agent.Failed, "it cancelled the request by itself"
	case result.Answer == "" && result.Narration != "":
		kind, message = agent.Empty, "it ended after a tool use"
	case result.Answer == "":
		kind = agent.Empty
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
		return w.agent.Warm.Failure(w.source.Env, refused.Code, refused.Message, w.unlinked)
	case errors.Is(err, errMute):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return w.agent.Error(agent.Crashed, w.cause())
}

// turn returns the turn of a session, or nil.
func (w *process) turn(session string) *turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns[session]
}

// Update implements [agent.Client].
func (w *process) Update(u agent.Update) {
	t := w.turn(u.Session)
	if t == nil {
		return
	}
	t.change(func() {
		t.news = time.Now()
		switch u.Kind {
		case agent.MessageChunk:
			if u.Text != "" && !w.agent.Warm.Notice(u.Text) {
				t.transcript.Text(u.Text, t.news)
			}
		case agent.RetryAnnounced:
			retry := *u.Retry
			retry.Message = w.agent.Tidy(w.source.Env, retry.Message)
			t.transcript.Emit(retry)
		case agent.ToolCall, agent.ToolCallUpdate:
			w.updateTool(t.transcript, u)
			if w.key.change && t.transcript.Writes() > t.written {
				t.transcript.Stray(w.agent.WriteTools[0] + ", to the disk")
			}
		}
	})
}

// updateTool records the state of a tool use. A rejected one may have no start.
func (w *process) updateTool(t *agent.Transcript, u agent.Update) {
	if !t.ToolRunning(u.ToolCall) {
		name, summary := w.agent.Warm.Tool(u.ToolCall, u.Title)
		t.ToolStarted(u.ToolCall, name, summary)
	}
	switch u.Status {
	case agent.ToolCompleted:
		t.ToolEnded(u.ToolCall, true, "")
	case agent.ToolFailed:
		t.ToolEnded(u.ToolCall, false, u.Text)
	}
}

var errNoTurn = errors.New("no prompt is running in this session")

// ReadFile implements [agent.Client].
func (w *process) ReadFile(session, path string) (string, error) {
	t := w.turn(session)
	if t == nil {
		return "", errNoTurn
	}
	return t.files.Read(path)
}

// WriteFile implements [agent.Client].
func (w *process) WriteFile(session, path, text string) error {
	t := w.turn(session)
	if t == nil {
		return errNoTurn
	}
	t.change(func() { t.written++ })
	return t.files.Write(path, text)
}

// endSearch ends the turn with the oldest running web search.
func endSearch(turns []*turn) {
	var oldest *turn
	var most time.Duration
	for _, t := range turns {
		t.mu.Lock()
		if longest, running := t.transcript.Searching(time.Now()); running && longest >= most {
			oldest, most = t, longest
		}
		t.mu.Unlock()
	}
	if oldest != nil {
		oldest.change(func() { oldest.looping = true })
	}
}

// announce reports a retry to the turn that it belongs to. The agent does not
// say which one that is. If there are several turns, it may be any without news
// for a while.
func announce(r agent.Retry, turns []*turn) {
	now := time.Now()
	if len(turns) == 1 {
		turns[0].change(func() { turns[0].transcript.Emit(r) })
		return
	}
	time.AfterFunc(quietInterval, func() {
		var silent []*turn
		for _, t := range turns {
			t.mu.Lock()
			if t.news.Before(now) && !t.over {
				silent = append(silent, t)
			}
			t.mu.Unlock()
		}
		r.Unsure = len(silent) > 1
		for _, t := range silent {
			t.change(func() { t.transcript.Emit(r) })
		}
	})
}
