package claude

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/jsonl"
)

// maxLine limits a message from the agent, in bytes.
const maxLine = 64 << 20

// Reports of a [conn]. [kindOf] knows them.
const (
	loginRefused = "the model's service refused the login"
	offersTools  = "it offers the model tools that Pollux denies"
	notCleared   = "it did not start a new conversation"
)

var (
	errEnded = errors.New("the connection has ended")
	errBusy  = errors.New("the conversation has ended, or is busy")
)

// A conn is an [agent.Conn]. The agent holds one conversation, and answers one prompt at a
// time. Only the goroutine of read handles messages.
type conn struct {
	client agent.Client
	in     io.ReadCloser
	out    io.WriteCloser
	w      *jsonl.Writer
	done   chan struct{} // closed when read has ended

	// read owns these.
	used     map[string]counts // since the start of the conversation
	streamed string            // the ID of the latest message that came in pieces

	mu             sync.Mutex // guards the fields below; not held while writing
	calls          int
	waiting        map[string]chan controlResponse // by request ID
	turn           *turn                           // the prompt that the agent works on, or nil
	sessions       int
	session        string // the ID of the conversation, or "" if none can be continued
	dir            string
	initial, model string // the model at the start and the selected one; "" if unknown
}

// A turn is a prompt that the agent works on. conn.mu guards its fields until done is
// closed.
type turn struct {
	session   string // "" for the command that starts a conversation
	started   bool   // the agent has begun: an earlier interrupt has no effect
	cancelled bool
	keySource string
	resets    time.Time      // when the limit is renewed that ended this turn
	cleared   bool           // a conversation has started
	refused   *agent.Refused // why this turn was interrupted
	result    resultMessage
	usage     map[string]counts
	err       error
	done      chan struct{}
}

func connect(r io.ReadCloser, w io.WriteCloser, _ bool, client agent.Client) agent.Conn {
	c := &conn{client: client, in: r, out: w, w: jsonl.NewWriter(w), done: make(chan struct{}), waiting: make(map[string]chan controlResponse)}
	go c.read()
	return c
}

// Done implements [agent.Conn].
func (c *conn) Done() <-chan struct{} { return c.done }

// Close implements [agent.Conn].
func (c *conn) Close() error {
	err := errors.Join(c.out.Close(), c.in.Close())
	<-c.done
	return err
}

// Initialize implements [agent.Conn].
func (c *conn) Initialize(ctx context.Context) error {
	if _, err := c.call(ctx, map[string]any{"subtype": "initialize"}); err != nil {
		return err
	}
	data, err := c.call(ctx, map[string]any{"subtype": "get_settings"})
	var refused *agent.Refused
	if err != nil && !errors.As(err, &refused) { // older releases refuse it
		return err
	}
	var settings struct {
		Applied struct {
			Model string `json:"model"`
		} `json:"applied"`
	}
	json.Unmarshal(data, &settings) // without it, the model is unknown
	c.mu.Lock()
	defer c.mu.Unlock()
	c.initial, c.model = settings.Applied.Model, settings.Applied.Model
	return nil
}

// NewSession implements [agent.Conn]. The conversation before it ends.
func (c *conn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	c.mu.Lock()
	c.session, c.dir = "", dir
	c.sessions++
	id, initial := strconv.Itoa(c.sessions), c.initial
	first, other := c.sessions == 1, c.model != initial
	c.mu.Unlock()
	if other {
		if err := c.SetModel(ctx, "", cmp.Or(initial, "default")); err != nil {
			return agent.Session{}, err
		}
	}
	if !first {
		if err := c.clear(ctx); err != nil {
			return agent.Session{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.model = id, initial
	return agent.Session{ID: id, Model: initial}, nil
}

// clear starts a conversation with none of the text of the one before.
func (c *conn) clear(ctx context.Context) error {
	t, err := c.begin("")
	if err != nil {
		return err
	}
	go c.w.Encode(userMessage(agent.Content{Type: "text", Text: "/clear"})) // the agent may not read
	select {
	case <-t.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if t.err == nil && (t.result.IsError || !t.cleared) {
		return &agent.Refused{Message: notCleared}
	}
	return t.err
}

// SetModel implements [agent.Conn].
func (c *conn) SetModel(ctx context.Context, _, model string) error {
	_, err := c.call(ctx, map[string]any{"subtype": "set_model", "model": model})
	if err == nil {
		c.mu.Lock()
		c.model = model
		c.mu.Unlock()
	}
	return err
}

// Prompt implements [agent.Conn].
func (c *conn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	t, err := c.begin(session)
	if err == nil {
		err = c.w.Encode(message(content))
	}
	if err != nil {
		return agent.PromptResult{}, err // after a failed write the connection ends
	}
	defer context.AfterFunc(ctx, func() { c.cancel(t) })()
	<-t.done
	raw, err := json.Marshal(t.usage)
	res := agent.PromptResult{StopReason: t.result.StopReason, Raw: raw}
	switch {
	case t.err != nil:
		err = t.err
	case t.refused != nil:
		err = t.refused
	case t.result.IsError && t.cancelled:
		res.StopReason = agent.StoppedCancelled
	case t.result.IsError:
		err = t.failure()
	}
	return res, err
}

// failure returns the error that ended a turn.
func (t *turn) failure() error {
	message := cmp.Or(t.result.Result, strings.Join(t.result.Errors, "; "))
	if left := time.Until(t.resets); left > 0 {
		message += fmt.Sprintf(" (in %s)", left.Round(time.Second))
	}
	return &agent.Refused{Code: t.result.Status, Message: message}
}

// begin registers a prompt.
func (c *conn) begin(session string) (*turn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return nil, errEnded
	default:
	}
	if c.turn != nil || session != c.session {
		return nil, errBusy
	}
	c.turn = &turn{session: session, done: make(chan struct{})}
	return c.turn, nil
}

// cancel ends a turn, as soon as it has started.
func (c *conn) cancel(t *turn) {
	c.mu.Lock()
	now := c.turn == t && t.started
	t.cancelled = true
	c.mu.Unlock()
	if now {
		c.interrupt()
	}
}

// interrupt ends the turn that has started. It does not wait.
func (c *conn) interrupt() { go c.send(map[string]any{"subtype": "interrupt"}, nil) }

// send sends a control request. The response goes to answer, unless that is nil.
func (c *conn) send(request map[string]any, answer chan controlResponse) {
	c.mu.Lock()
	c.calls++
	id := strconv.Itoa(c.calls)
	if answer != nil {
		c.waiting[id] = answer
	}
	c.mu.Unlock()
	c.w.Encode(map[string]any{"type": "control_request", "request_id": id, "request": request}) // or the connection ends
}

// call sends a control request and waits for the response. It ends with the context even
// if the agent does not read.
func (c *conn) call(ctx context.Context, request map[string]any) (json.RawMessage, error) {
	answer := make(chan controlResponse, 1)
	go c.send(request, answer)
	select {
	case m := <-answer:
		if m.Response.Subtype != "success" {
			return nil, &agent.Refused{Message: m.Response.Error}
		}
		return m.Response.Response, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.done:
		return nil, errEnded
	}
}

// read handles the agent's messages until the end of the connection.
func (c *conn) read() {
	defer c.end()
	lines := jsonl.NewReader(c.in, maxLine)
	for {
		line, err := lines.ReadLine()
		var h header
		if json.Unmarshal(line, &h) == nil { // programs print other lines too
			c.handle(h, line)
		}
		if err != nil {
			return
		}
	}
}

// end fails what waits for the agent.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.done)
	if c.turn != nil {
		c.turn.err = errEnded
		close(c.turn.done)
		c.turn = nil
	}
}

func (c *conn) handle(h header, line []byte) {
	switch h.Type {
	case "control_response":
		handle(line, c.respond)
	case "control_request":
		handle(line, c.refuse)
	case "conversation_reset":
		c.used = nil
		c.change(func(t *turn) { t.cleared = true })
	case "rate_limit_event":
		handle(line, c.limit)
	case "system":
		switch h.Subtype {
		case "init":
			handle(line, c.start)
		case "api_retry":
			handle(line, c.retry)
		default:
			c.update(agent.Update{Kind: agent.UpdateKind(h.Subtype)})
		}
	case "stream_event":
		handle(line, c.stream)
	case "assistant":
		handle(line, c.assistant)
	case "user":
		handle(line, c.results)
	case "result":
		handle(line, c.result)
	}
}

// handle parses a message for a handler. A damaged one is skipped.
func handle[T any](line []byte, handler func(T)) {
	var m T
	if json.Unmarshal(line, &m) == nil {
		handler(m)
	}
}

func (c *conn) respond(m controlResponse) {
	id := m.Response.RequestID
	c.mu.Lock()
	answer := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if answer != nil {
		answer <- m
	}
}

// refuse answers a request of the agent: the client grants no permissions.
func (c *conn) refuse(m struct {
	RequestID string `json:"request_id"`
}) {
	response := map[string]any{"subtype": "error", "request_id": m.RequestID, "error": "Pollux does not allow this"}
	go c.w.Encode(map[string]any{"type": "control_response", "response": response}) // the agent may not read
}

// change calls f with the turn, if the agent works on one.
func (c *conn) change(f func(*turn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn != nil {
		f(c.turn)
	}
}

// update sends an update of the conversation.
func (c *conn) update(u agent.Update) {
	c.change(func(t *turn) { u.Session = t.session })
	if u.Session != "" {
		c.client.Update(u)
	}
}

func (c *conn) limit(m limitMessage) {
	if m.Info.Status == "rejected" {
		c.change(func(t *turn) { t.resets = time.Unix(m.Info.ResetsAt, 0) })
	}
}

// start handles the message at the start of an answer.
func (c *conn) start(m initMessage) {
	end := false
	c.change(func(t *turn) {
		t.started, t.keySource = true, m.KeySource
		denied := func(tool string) bool { return !slices.Contains(readTools, tool) }
		if i := slices.IndexFunc(m.Tools, denied); i >= 0 && t.session != "" {
			t.refused = &agent.Refused{Message: offersTools + ": " + m.Tools[i]}
		}
		end = t.cancelled || t.refused != nil
	})
	if end {
		c.interrupt()
	}
	c.update(agent.Update{Kind: "init"})
}

// retry handles the announcement of a retry. A refused API key stays refused, though the
// agent would try ten times. It renews a login, and tries twice.
func (c *conn) retry(m retryMessage) {
	if m.Status == 401 {
		refused := false
		c.change(func(t *turn) {
			if t.keySource != "none" {
				t.refused, refused = &agent.Refused{Code: m.Status, Message: loginRefused}, true
			}
		})
		if refused {
			c.interrupt()
			return
		}
	}
	c.update(agent.Update{Kind: agent.RetryAnnounced, Retry: &agent.Retry{
		Attempt: m.Attempt, Wait: time.Duration(m.Delay) * time.Millisecond, Kind: retryKind(m.Status),
	}})
}

func (c *conn) stream(m streamEvent) {
	u := agent.Update{Kind: agent.UpdateKind(m.Event.Type)}
	switch {
	case m.Parent != "":
	case m.Event.Type == "message_start":
		c.streamed = m.Event.Message.ID
	case m.Event.Delta.Type == "text_delta":
		u.Kind, u.Text = agent.MessageChunk, m.Event.Delta.Text
	}
	c.update(u)
}

// assistant handles a message of the model. Its text has come in pieces, unless the agent
// has asked the model again without streaming.
func (c *conn) assistant(m chatMessage) {
	whole := m.Parent == "" && m.Message.ID != c.streamed && m.Message.Model != synthetic
	for _, b := range blocks(m.Message.Content) {
		switch {
		case b.Type == "tool_use":
			c.mu.Lock()
			dir := c.dir
			c.mu.Unlock()
			c.update(agent.Update{Kind: agent.ToolCall, ToolCall: b.ID, Title: title(b, dir)})
		case b.Type == "text" && whole:
			c.update(agent.Update{Kind: agent.MessageChunk, Text: b.Text})
		}
	}
}

// results handles the results of tools.
func (c *conn) results(m chatMessage) {
	for _, b := range blocks(m.Message.Content) {
		if b.Type != "tool_result" {
			continue
		}
		u := agent.Update{Kind: agent.ToolCallUpdate, ToolCall: b.ToolUseID, Status: agent.ToolCompleted}
		if b.IsError {
			u.Status, u.Text = agent.ToolFailed, toolError(textOf(b.Content))
		}
		c.update(u)
	}
}

// toolError removes the tags around the error message of a tool.
func toolError(text string) string {
	text = strings.TrimPrefix(text, "<tool_use_error>")
	return strings.TrimPrefix(strings.TrimSuffix(text, "</tool_use_error>"), "Error: ")
}

func (c *conn) result(m resultMessage) {
	spent := since(m.Usage, c.used)
	c.used = m.Usage
	c.change(func(t *turn) {
		t.result, t.usage = m, spent
		c.turn = nil
		close(t.done)
	})
}
