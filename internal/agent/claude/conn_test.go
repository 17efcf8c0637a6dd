package claude

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A recorder is a client that records updates as text.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder // the messages
	seen []string        // the other updates, apart from signs of life
	said chan struct{}   // receives when the first text has arrived
	once sync.Once
}

func (r *recorder) Update(u agent.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch u.Kind {
	case agent.MessageChunk:
		r.text.WriteString(u.Session + ":" + u.Text + "|")
		r.once.Do(func() { close(r.said) })
	case agent.ToolCall:
		r.seen = append(r.seen, "call "+u.Title)
	case agent.ToolCallUpdate:
		r.seen = append(r.seen, u.Status+" "+u.Text)
	case agent.RetryAnnounced:
		r.seen = append(r.seen, fmt.Sprintf("retry %d after %s: %s", u.Retry.Attempt, u.Retry.Wait, u.Retry.Kind))
	}
}

func (*recorder) ReadFile(string, string) (string, error) { return "", errors.New("no files") }
func (*recorder) WriteFile(string, string, string) error  { return errors.New("no files") }

// A replayed is a connection to a recording of the real agent.
type replayed struct {
	agent.Conn
	*recorder
	t *testing.T
}

// replay connects to a recording: lines that the agent printed after "< ", and those that it
// must receive first after "> ". It initializes the connection and starts a conversation.
func replay(t *testing.T, name string, change func(string) string) *replayed {
	t.Helper()
	text := systest.ReadFile(t, filepath.Join("testdata", name+".txt"))
	if change != nil {
		text = change(text)
	}
	ours, theirs := systest.Pipes()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer theirs.CloseWrite()
		read := bufio.NewReader(theirs)
		for line := range strings.Lines(text) {
			if printed, ok := strings.CutPrefix(line, "< "); ok {
				io.WriteString(theirs, printed)
				continue
			}
			got, err := read.ReadBytes('\n')
			if err != nil {
				t.Errorf("%v instead of %s", err, line)
				return
			}
			if want := []byte(strings.TrimPrefix(line, "> ")); !reflect.DeepEqual(parsed(t, got), parsed(t, want)) {
				t.Errorf("it receives %s, not %s", got, want)
			}
		}
	}()
	r := &recorder{said: make(chan struct{})}
	c := &replayed{connect(ours, ours, false, r), r, t}
	t.Cleanup(func() {
		<-ended
		c.Close()
	})
	if err := c.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func parsed(t *testing.T, line []byte) (v any) {
	if err := json.Unmarshal(line, &v); err != nil {
		t.Errorf("%v: %s", err, line)
	}
	return v
}

// session starts a conversation. Its model must be the default one.
func (c *replayed) session() string {
	c.t.Helper()
	s, err := c.NewSession(c.t.Context(), "/project")
	if err != nil || s.Model != "claude-opus-5-5" {
		c.t.Fatalf("%+v, %v", s, err)
	}
	return s.ID
}

func (c *replayed) ask(session, text string) (agent.PromptResult, error) {
	c.t.Helper()
	return c.Prompt(c.t.Context(), session, []agent.Content{{Type: "text", Text: text}})
}

// want asks, and checks the text of the answer and the tokens of this answer alone.
func (c *replayed) want(session, text, answer string) {
	c.t.Helper()
	before := c.text.Len()
	res, err := c.ask(session, text)
	if err != nil {
		c.t.Fatal(err)
	}
	if got := strings.ReplaceAll(c.text.String()[before:], session+":", ""); strings.ReplaceAll(got, "|", "") != answer {
		c.t.Errorf("the answer to %q is %q, not %q", text, got, answer)
	}
	model, tokens := usage(res.Raw)
	if want := (agent.Tokens{Input: 123, Output: 7, Cached: 20, Total: 130}); tokens != want || !strings.HasPrefix(model, "claude-") {
		c.t.Errorf("%s has used %+v, not %+v", model, tokens, want)
	}
}

// wantError asks, and checks the error.
func (c *replayed) wantError(session, text string, kind agent.Kind, words ...string) {
	c.t.Helper()
	_, err := c.ask(session, text)
	var refused *agent.Refused
	if !errors.As(err, &refused) {
		c.t.Fatalf("the error is %v", err)
	}
	agenttest.WantKind(c.t, failure(nil, refused.Code, refused.Message, nil), kind, words...)
	if got := c.text.String(); got != "" {
		c.t.Errorf("the error is taken for an answer: %q", got)
	}
}

// The tokens of an answer are its own, though the agent counts them from the start of the
// conversation. A new conversation begins with an empty one.
func TestAnswers(t *testing.T) {
	c := replay(t, "answers", nil)
	first := c.session()
	c.want(first, "hello", "answer to hello ")
	c.want(first, "more", "answer to more ")
	second := c.session()
	if _, err := c.ask(first, "lost"); !errors.Is(err, errBusy) {
		t.Errorf("a conversation that has ended answers: %v", err)
	}
	c.want(second, "again", "answer to again ")
	if got := c.text.String(); !strings.Contains(got, "|1:") || !strings.HasPrefix(got, "1:answer |1:to |") {
		t.Errorf("the pieces are %q", got)
	}
}

func TestTools(t *testing.T) {
	c := replay(t, "tools", nil)
	if _, err := c.ask(c.session(), `DO:[{"tool":"Read","input":{"file_path":"/project/a.txt"}},{"tool":"Write","input":{"file_path":"/project/w.txt","content":"x"}}]`); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(c.seen, "\n")
	for _, want := range []string{"call Read a.txt", "call Write w.txt", "completed ", "failed No such tool available: Write."} {
		if !strings.Contains("\n"+got, "\n"+want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, test := range []struct{ title, name, summary string }{
		{"Read a.txt", "Read", "a.txt"}, {"Grep two\n words", "Grep", "two words"}, {"Strange", "Strange", ""},
	} {
		if name, summary := tool(agent.Update{Title: test.title}); name != test.name || summary != test.summary {
			t.Errorf("%q is %q and %q", test.title, name, summary)
		}
	}
}

func TestCancel(t *testing.T) {
	c := replay(t, "cancel", nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-c.said
		cancel()
	}()
	res, err := c.Prompt(ctx, c.session(), []agent.Content{{Type: "text", Text: "SLOW"}})
	if err != nil || res.StopReason != agent.StoppedCancelled {
		t.Errorf("%+v, %v", res, err)
	}
	c.want(c.session(), "hello", "answer to hello ")
}

// An interrupt that arrives before the agent has begun is lost, and the agent answered to
// the end.
func TestCancelBeforeTheStart(t *testing.T) {
	c := replay(t, "cancel-early", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := c.Prompt(ctx, c.session(), []agent.Content{{Type: "text", Text: "SLOW"}})
	if err != nil || res.StopReason != agent.StoppedCancelled {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		recording, prompt string
		kind              agent.Kind
		words, retries    []string
	}{
		{"error", "FAIL:400 odd", agent.BadRequest, []string{"400 odd"}, nil},
		{"key-refused", "FAIL:401 invalid x-api-key", agent.Auth, []string{"run `claude` and type /login", "ANTHROPIC_API_KEY"}, nil},
		// The agent may renew its login.
		{"login-refused", "FAIL:401 OAuth token expired", agent.Auth, []string{"OAuth token expired", "/login"}, []string{"retry 1 after", "retry 2 after"}},
		{"no-login", "hello", agent.Auth, []string{"Not logged in", "run `claude` and type /login"}, nil},
	} {
		t.Run(test.recording, func(t *testing.T) {
			c := replay(t, test.recording, nil)
			s, err := c.NewSession(t.Context(), "/project")
			if err != nil {
				t.Fatal(err)
			}
			c.wantError(s.ID, test.prompt, test.kind, test.words...)
			if len(c.seen) != len(test.retries) {
				t.Errorf("it reports %q", c.seen)
			}
			for i, want := range test.retries {
				if !strings.HasPrefix(c.seen[i], want) {
					t.Errorf("it reports %q, not %s", c.seen[i], want)
				}
			}
		})
	}
}

// The limit of a subscription says when it is renewed.
func TestLimit(t *testing.T) {
	resets := regexp.MustCompile(`"resetsAt": \d+`)
	c := replay(t, "limit", func(text string) string {
		return resets.ReplaceAllString(text, fmt.Sprintf(`"resetsAt": %d`, time.Now().Add(2*time.Hour).Unix()))
	})
	s, err := c.NewSession(t.Context(), "/project")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ask(s.ID, "LIMIT")
	var refused *agent.Refused
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	fault := failure(nil, refused.Code, refused.Message, nil)
	agenttest.WantKind(t, fault, agent.QuotaDay, "You've hit your limit", "name another model")
	if got := resetAfter(fault.Message); got < 119*time.Minute || got > 2*time.Hour {
		t.Errorf("it resets after %s, according to %q", got, fault.Message)
	}
}

// The model of a conversation does not become the model of the next one.
func TestModels(t *testing.T) {
	c := replay(t, "models", nil)
	s := c.session()
	var refused *agent.Refused
	if err := c.SetModel(t.Context(), s, "nope"); !errors.As(err, &refused) || kindOf(refused.Message) != agent.BadModel {
		t.Errorf("another error: %v", err)
	}
	if err := c.SetModel(t.Context(), s, "claude-haiku-4-5"); err != nil {
		t.Fatal(err)
	}
	c.want(s, "hello", "answer to hello ")
	c.want(c.session(), "hello", "answer to hello ")
}

func TestImage(t *testing.T) {
	c := replay(t, "image", nil)
	png := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\xdacd\xf8\xcfP\x0f\x00\x03\x86\x01\x80Z4}k\x00\x00\x00\x00IEND\xaeB`\x82")
	res, err := c.Prompt(t.Context(), c.session(), []agent.Content{{Type: "text", Text: "/cost"}, {Type: "image", Data: png, MIMEType: "image/png"}})
	if err != nil || c.text.String() == "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// scripted connects to an agent that prints lines when it receives a prompt, and ends if there
// are none. It starts a conversation.
func scripted(t *testing.T, lines ...string) (c *replayed, session string) {
	t.Helper()
	ours, theirs := systest.Pipes()
	go func() {
		defer theirs.CloseWrite()
		for received := bufio.NewScanner(theirs); received.Scan(); {
			if strings.Contains(received.Text(), `"type":"user"`) {
				if len(lines) == 0 {
					return
				}
				io.WriteString(theirs, strings.Join(lines, "\n")+"\n")
			}
		}
	}()
	r := &recorder{said: make(chan struct{})}
	c = &replayed{connect(ours, ours, false, r), r, t}
	t.Cleanup(func() { theirs.Close(); c.Close() })
	s, err := c.NewSession(t.Context(), "/project")
	if err != nil {
		t.Fatal(err)
	}
	return c, s.ID
}

// A release that ignores the arguments offers the model more tools.
func TestMoreToolsAreRefused(t *testing.T) {
	c, s := scripted(t, `{"type":"system","subtype":"init","tools":["Read","Bash"]}`, `{"type":"result","is_error":false}`)
	c.wantError(s, "hello", agent.Unenforceable, "Bash")
}

// A conversation that could not be ended is not continued by the next caller.
func TestNotCleared(t *testing.T) {
	c, s := scripted(t, `{"type":"result","is_error":false,"result":"unknown command"}`)
	if next, err := c.NewSession(t.Context(), "/project"); err == nil {
		t.Errorf("it starts %+v", next)
	}
	if _, err := c.ask(s, "hello"); !errors.Is(err, errBusy) {
		t.Errorf("the first conversation continues: %v", err)
	}
}

// Everything that waits ends with the agent.
func TestAgentEnds(t *testing.T) {
	c, s := scripted(t)
	if _, err := c.ask(s, "hello"); !errors.Is(err, errEnded) {
		t.Errorf("the prompt ends with %v", err)
	}
	if err := c.SetModel(t.Context(), s, "x"); !errors.Is(err, errEnded) {
		t.Errorf("the request ends with %v", err)
	}
	if _, err := c.NewSession(t.Context(), "/project"); !errors.Is(err, errEnded) {
		t.Errorf("the conversation ends with %v", err)
	}
	<-c.Done()
}

// An agent that does not answer holds no request longer than its context.
func TestAgentIsMute(t *testing.T) {
	ours, theirs := systest.Pipes()
	c := connect(ours, ours, false, &recorder{})
	t.Cleanup(func() { theirs.Close(); c.Close() })
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := c.Initialize(ctx); !errors.Is(err, gone) {
		t.Errorf("the error is %v", err)
	}
}

// Text that came without pieces, as after a failed stream, is the answer too. Messages of
// the agent itself are not.
func TestWholeMessage(t *testing.T) {
	c, s := scripted(t,
		`noise`,
		`{"type":"stream_event","event":{"type":"message_start","message":{"id":"a"}}}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"one "}}}`,
		`{"type":"assistant","message":{"id":"a","content":[{"type":"text","text":"one "}]}}`,
		`{"type":"assistant","message":{"id":"b","model":"<synthetic>","content":[{"type":"text","text":"hidden"}]}}`,
		`{"type":"assistant","message":{"id":"c","content":[{"type":"text","text":"two"}]}}`,
		`{"type":"result","is_error":false}`,
	)
	if _, err := c.ask(s, "hello"); err != nil || c.text.String() != "1:one |1:two|" {
		t.Errorf("%v; the text is %q", err, c.text.String())
	}
}

// The agent may print anything, in any order. It never blocks or breaks the connection.
func FuzzMessages(f *testing.F) {
	recordings, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(recordings) == 0 {
		f.Fatal(err)
	}
	for _, name := range recordings {
		data := systest.ReadFile(f, name)
		f.Add(strings.ReplaceAll(data, "\n< ", "\n"))
	}
	f.Add(`{"type":"assistant","message":{"content":[{"type":"tool_use","input":[]}]}}`)
	f.Add(`{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"x"}],"is_error":true}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		in, toAgent := io.Pipe()
		go io.Copy(io.Discard, in)
		r := &recorder{said: make(chan struct{})}
		c := connect(io.NopCloser(strings.NewReader(text)), toAgent, false, r)
		if s, err := c.NewSession(t.Context(), "/project"); err == nil {
			c.Prompt(t.Context(), s.ID, nil)
		}
		<-c.Done()
		c.Close()
		in.Close()
	})
}
