package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Transcript collects what an agent says and does in one run. It keeps a
// limited amount, however much the agent prints. It is not safe for concurrent
// use.
type Transcript struct {
	agent  *Agent
	env    Env
	emit   func(Event)
	change bool // the write tools are allowed

	answer    strings.Builder
	narration strings.Builder
	truncated bool
	lastText  time.Time // when the last piece of the answer was written
	restarts  []int     // offsets in the answer where it continued after a pause

	model   string
	tokens  Tokens
	tools   int
	open    map[string]openTool // the running tools, by ID
	strayed string              // a tool that ran although the policy denies it
	writes  int                 // successful uses of the write tools
}

// An openTool is a tool use without a result.
type openTool struct {
	name  string
	since time.Time
}

// NewTranscript returns a transcript that calls emit for each event. Messages
// contain no secrets from env. change allows the agent's write tools.
func NewTranscript(a *Agent, env Env, change bool, emit func(Event)) *Transcript {
	return &Transcript{agent: a, env: env, change: change, emit: emit, open: make(map[string]openTool)}
}

// Emit emits an event that no update reports.
func (t *Transcript) Emit(ev Event) { t.emit(ev) }

// Update adds an update of a connection. now is when it has arrived.
func (t *Transcript) Update(how *Process, u Update, now time.Time) {
	switch u.Kind {
	case Begun:
		t.model = u.Model
		t.emit(Started{})
	case MessageChunk:
		if u.Text != "" && (how.Notice == nil || !how.Notice(u.Text)) {
			t.text(u.Text, cmp.Or(u.At, now))
		}
	case Skipped:
		t.truncated = true
	case RetryAnnounced:
		retry := *u.Retry
		retry.Message = t.agent.Tidy(t.env, retry.Message)
		t.emit(retry)
	case ToolCall, ToolCallUpdate:
		if _, running := t.open[u.ToolCall]; !running { // a rejected one may have no start
			t.toolStarted(how, u)
		}
		switch u.Status {
		case ToolCompleted:
			t.toolEnded(u.ToolCall, true, "")
		case ToolFailed:
			t.toolEnded(u.ToolCall, false, u.Text)
		}
	}
}

// text adds a piece of text from the model, written at the given time.
func (t *Transcript) text(text string, at time.Time) {
	if t.answer.Len() > 0 && at.Sub(t.lastText) >= restartDelay {
		t.restarts = append(t.restarts, t.answer.Len())
	}
	t.lastText = at
	if room := MaxAnswer - t.answer.Len(); len(text) > room {
		text, t.truncated = strings.ToValidUTF8(text[:max(room, 0)], ""), true
	}
	if text != "" {
		t.answer.WriteString(text)
		t.emit(Text{Text: text})
	}
}

func (t *Transcript) toolStarted(how *Process, u Update) {
	name, summary := how.Tool(u)
	t.endTurn()
	t.tools++
	t.open[u.ToolCall] = openTool{name, time.Now()}
	t.emit(ToolUse{Name: name, Summary: summary})
}

// toolEnded records the end of a tool use. message is its error message.
func (t *Transcript) toolEnded(id string, ok bool, message string) {
	t.endTurn()
	name := t.open[id].name
	delete(t.open, id)
	if ok && name != "" && !t.allowed(name) {
		t.strayed = name
	}
	if ok && slices.Contains(t.agent.WriteTools, name) {
		t.writes++
	}
	t.emit(ToolResult{Name: name, OK: ok, Message: t.agent.Tidy(t.env, message)})
}

func (t *Transcript) allowed(name string) bool {
	return t.agent.Custom || slices.Contains(t.agent.ReadTools, name) || slices.Contains(t.agent.ReadAliases, name) ||
		t.change && slices.Contains(t.agent.WriteTools, name)
}

// Stray records the use of a tool that the policy denies. Only the first use
// counts.
func (t *Transcript) Stray(description string) {
	if t.strayed == "" {
		t.strayed = description
	}
}

// Writes returns the number of successful uses of the write tools.
func (t *Transcript) Writes() int { return t.writes }

// Searching returns how long the oldest running web search has been running,
// and whether there is one.
func (t *Transcript) Searching(now time.Time) (longest time.Duration, running bool) {
	for _, tool := range t.open {
		if t.agent.SearchTool != "" && tool.name == t.agent.SearchTool {
			longest, running = max(longest, now.Sub(tool.since)), true
		}
	}
	return longest, running
}

// searchTimeout is how long a web search may take.
const searchTimeout = 60 * time.Second

// Fault returns an error if the run must end: the agent used a tool that is denied, repeats a
// web search, waits too long for one, or has said nothing for longer than idle. looping says that
// it repeats a search, if one is running. news is when something last arrived.
func (t *Transcript) Fault(looping bool, news time.Time, idle time.Duration) *Error {
	now := time.Now()
	longest, searching := t.Searching(now)
	switch {
	case t.strayed != "":
		return t.agent.Error(Strayed, t.strayed)
	case looping && searching:
		return t.agent.Error(SearchQuota, "")
	case longest > searchTimeout:
		return t.agent.Error(Stalled, fmt.Sprintf("a web search had no answer for %s", searchTimeout))
	case now.Sub(news) > idle:
		return t.agent.Error(Stalled, fmt.Sprintf("no output for %s", idle))
	}
	return nil
}

// SetModel records the requested model.
func (t *Transcript) SetModel(model string) { t.model = model }

// SetUsage records the agent's statistics: the model that answered, if known,
// and the tokens.
func (t *Transcript) SetUsage(model string, tokens Tokens) {
	t.tokens = tokens
	if model != "" {
		t.model = model
	}
}

// Result returns the result so far.
func (t *Transcript) Result() Result {
	return Result{
		Answer: strings.TrimSpace(t.lastAttempt()), Narration: t.narration.String(),
		Model: t.model, Tokens: t.tokens, Tools: t.tools, Truncated: t.truncated,
	}
}

// endTurn moves the text to the narration, because a tool use follows.
func (t *Transcript) endTurn() {
	if t.answer.Len() == 0 {
		return
	}
	if t.narration.Len() > 0 {
		t.narration.WriteString("\n")
	}
	if t.narration.Len() < MaxAnswer {
		t.narration.WriteString(strings.TrimSpace(t.answer.String()))
	}
	t.answer.Reset()
	t.restarts = nil
}

// restartDelay is the shortest pause after which an answer may start again from
// the beginning.
const restartDelay = 500 * time.Millisecond

// lastAttempt returns the answer without the text of failed attempts. When a
// stream breaks, agents ask the model again and print its text as if the answer
// continued. The text is a new attempt if it repeats the old one, and is too
// long to be a repetition by chance.
func (t *Transcript) lastAttempt() string {
	s, cut := t.answer.String(), 0
	for _, at := range t.restarts {
		if first := s[cut:at]; len(first) >= 32 && len(strings.Fields(first)) >= 5 && strings.HasPrefix(s[at:], first) {
			cut = at
		}
	}
	return s[cut:]
}
