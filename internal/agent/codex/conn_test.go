package codex

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pollux/internal/agent"
	"pollux/internal/jsonrpc"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorder is an [agent.Client].
type recorder struct {
	agent.Client
	updates []agent.Update
}

func (r *recorder) Update(u agent.Update) {
	switch u.Kind {
	case agent.MessageChunk, agent.ToolCall, agent.ToolCallUpdate, agent.RetryAnnounced:
		r.updates = append(r.updates, u)
	}
}

// A server plays the app server. It answers each request with the lines that follow ">" and
// its method in a script.
type server struct {
	conn     agent.Conn
	client   *recorder
	requests chan string
	out      *systest.Duplex
}

// answerID matches the ID of a recorded answer, which another client asked for.
var answerID = regexp.MustCompile(`(?m)^{"id":\d+,"result"`)

func play(t *testing.T, script string) *server {
	t.Helper()
	ours, theirs := systest.Pipes()
	s := &server{client: new(recorder), requests: make(chan string, 100), out: theirs}
	s.conn = connect(ours, ours, false, s.client)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		steps := strings.Split("\n"+script, "\n> ")[1:]
		for in := bufio.NewScanner(theirs); in.Scan(); {
			var m struct {
				ID     int64
				Method string
			}
			json.Unmarshal(in.Bytes(), &m)
			s.requests <- in.Text()
			if m.Method == "initialized" || m.Method == "" || len(steps) == 0 {
				continue
			}
			method, lines, _ := strings.Cut(steps[0], "\n")
			steps = steps[1:]
			if method != m.Method {
				t.Errorf("the server receives %s, not %s", m.Method, method)
			}
			lines = answerID.ReplaceAllString(strings.TrimRight(lines, "\n"), fmt.Sprintf(`{"id":%d,"result"`, m.ID))
			io.WriteString(theirs, lines+"\n")
		}
	}()
	t.Cleanup(func() {
		s.conn.Close()
		<-ended
	})
	return s
}

func recorded(t *testing.T) string {
	t.Helper()
	return systest.ReadFile(t, "testdata/session.txt")
}

// open starts a conversation.
func (s *server) open(t *testing.T) agent.Session {
	t.Helper()
	if err := s.conn.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	session, err := s.conn.NewSession(t.Context(), "/project")
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func (s *server) prompt(session agent.Session, text string) (agent.PromptResult, error) {
	return s.conn.Prompt(context.Background(), session.ID, []agent.Content{{Type: "text", Text: text}})
}

// A conversation as the real server held it.
func TestConn(t *testing.T) {
	s := play(t, recorded(t))
	session := s.open(t)
	if session != (agent.Session{ID: "thread-1", Model: "gpt-5.5"}) {
		t.Errorf("the session is %+v", session)
	}
	s.conn.SetModel(t.Context(), session.ID, "gpt-5.4")
	res, err := s.prompt(session, "what does a.txt say?")
	if err != nil || res.StopReason != "completed" {
		t.Errorf("%+v, %v", res, err)
	}
	if model, tokens := usage(res.Raw); model != "" || tokens != (agent.Tokens{Input: 300, Cached: 120, Output: 21, Total: 321}) {
		t.Errorf("usage: %q, %+v", model, tokens)
	}
	want := []agent.Update{
		{Kind: agent.MessageChunk, Text: "I look."},
		{Kind: agent.ToolCall, ToolCall: "read__call_resp_1795704762093053412_1", Title: "/project/a.txt", Status: "inProgress"},
		{Kind: agent.ToolCallUpdate, ToolCall: "read__call_resp_1795704762093053412_1", Title: "/project/a.txt", Status: agent.ToolCompleted},
		{Kind: agent.ToolCall, ToolCall: "web_search__ws_1", Title: "weather"},
		{Kind: agent.ToolCallUpdate, ToolCall: "web_search__ws_1", Title: "weather", Status: agent.ToolCompleted},
		{Kind: agent.MessageChunk, Text: "It says "},
		{Kind: agent.MessageChunk, Text: "\n\ncontent of a."},
	}
	for i := range want {
		want[i].Session = session.ID
	}
	if !reflect.DeepEqual(s.client.updates, want) {
		t.Errorf("the updates are %+v", s.client.updates)
	}

	s.client.updates = nil
	_, err = s.prompt(session, "refuse")
	refused, ok := errors.AsType[*agent.Refused](err)
	if !ok || refused.Code != 503 || !strings.Contains(refused.Message, "scripted overload") {
		t.Errorf("the error is %+v", err)
	}
	if n := len(s.client.updates); n != 5 {
		t.Fatalf("%d retries", n)
	}
	if got := *s.client.updates[1].Retry; got.Attempt != 2 || got.Kind != agent.Capacity || got.Wait != 400*time.Millisecond {
		t.Errorf("the second retry is %+v", got)
	}

	close(s.requests)
	for line := range s.requests {
		switch {
		case strings.Contains(line, `"sandbox"`):
			t.Errorf("the client names a sandbox: %s", line)
		case strings.Contains(line, `"thread/start"`) && !strings.Contains(line, `"mcp_servers":{"mine":{"enabled":false}}`):
			t.Errorf("the server of the settings stays on: %s", line)
		case strings.Contains(line, `"turn/start"`) && !strings.Contains(line, `"model":"gpt-5.4"`):
			t.Errorf("the model is not selected: %s", line)
		}
	}
}

// A thread without the permissions of Pollux, or with a sandbox that allows writing, is not used.
func TestConnUnenforced(t *testing.T) {
	for _, change := range [][2]string{
		{`"type":"readOnly"`, `"type":"workspaceWrite"`}, {`"approvalPolicy":"never"`, `"approvalPolicy":"on-request"`},
		{`"activePermissionProfile":{"id":"pollux"`, `"activePermissionProfile":{"id":"theirs"`}, {`"activePermissionProfile"`, `"x"`},
	} {
		text := recorded(t)
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the recording has no %s", change[0])
		}
		s := play(t, strings.Replace(text, change[0], change[1], 1))
		s.conn.Initialize(t.Context())
		_, err := s.conn.NewSession(t.Context(), "/project")
		refused, ok := errors.AsType[*agent.Refused](err)
		if !ok || failure(nil, refused.Code, refused.Message, nil).Kind != agent.Unenforceable {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

func TestConnSignedOut(t *testing.T) {
	s := play(t, strings.Replace(recorded(t), `"requiresOpenaiAuth":false`, `"requiresOpenaiAuth":true`, 1))
	s.conn.Initialize(t.Context())
	_, err := s.conn.NewSession(t.Context(), "/project")
	refused, ok := errors.AsType[*agent.Refused](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	if err := failure(nil, refused.Code, refused.Message, nil); err.Kind != agent.Auth || !strings.Contains(err.Error(), "run `codex login`") {
		t.Errorf("got %v", err)
	}
}

// opening is the part of the recording before the first prompt.
func opening(t *testing.T) string {
	before, _, _ := strings.Cut(recorded(t), "> turn/start")
	return before
}

const startedTurn = `> turn/start
{"id":5,"result":{"turn":{"id":"turn-1"}}}
`

// Cancelling ends the turn. A request of the server is declined meanwhile.
func TestConnCancel(t *testing.T) {
	s := play(t, opening(t)+startedTurn+
		`{"id":"a","method":"item/commandExecution/requestApproval","params":{"threadId":"thread-1"}}
> turn/interrupt
{"id":6,"result":{}}
{"method":"turn/completed","params":{"threadId":"thread-1","turn":{"id":"turn-1","status":"interrupted"}}}
`)
	session := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := s.conn.Prompt(ctx, session.ID, []agent.Content{{Type: "text", Text: "x"}})
	if err != nil || res.StopReason != agent.StoppedCancelled {
		t.Errorf("%+v, %v", res, err)
	}
	for line := range s.requests {
		if strings.Contains(line, `"id":"a","error":{"code":-32601,`) {
			break
		}
	}
}

func TestInput(t *testing.T) {
	got, err := json.Marshal(input([]agent.Content{{Type: "text", Text: "x"}, {Type: "image", Data: []byte("abc"), MIMEType: "image/png"}}))
	want := `[{"text":"x","text_elements":[],"type":"text"},{"type":"image","url":"data:image/png;base64,YWJj"}]`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// A process that ends in the middle of an answer fails the prompt.
func TestConnEnds(t *testing.T) {
	s := play(t, opening(t)+startedTurn)
	session := s.open(t)
	go func() {
		for line := range s.requests {
			if strings.Contains(line, `"turn/start"`) {
				s.out.CloseWrite()
				return
			}
		}
	}()
	if _, err := s.conn.Prompt(t.Context(), session.ID, nil); !errors.Is(err, jsonrpc.ErrClosed) {
		t.Errorf("got %v", err)
	}
	<-s.conn.Done()
	if err := s.conn.Initialize(t.Context()); err == nil {
		t.Error("a connection that has ended answers")
	}
}

// A call ends with its context if the server does not read.
func TestConnMute(t *testing.T) {
	ours, theirs := systest.Pipes()
	c := connect(ours, ours, false, new(recorder))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("too late")
	cancel(cause)
	if err := c.Initialize(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	theirs.Close()
	c.Close()
}

type reader struct{ io.Reader }

func (reader) Close() error { return nil }

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// Whatever the agent prints, no message is lost.
func FuzzConn(f *testing.F) {
	text := systest.ReadFile(f, "testdata/session.txt")
	for line := range strings.Lines(text) {
		f.Add(line)
	}
	f.Add("noise\n{\"id\":1}\n[1]\n{\"method\":\"item/completed\",\"params\":{\"threadId\":\"t\",\"item\":[]}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		want := 0
		for line := range strings.Lines(text) {
			if m, err := jsonrpc.Parse([]byte(line)); err == nil && m.Method != nil && m.ID == nil {
				want++
			}
		}
		got := 0
		c := &Conn{client: new(recorder), threads: map[string]*thread{"t": {turn: &turn{end: make(chan turnEnd, 1)}}, "thread-1": {turn: &turn{end: make(chan turnEnd, 1)}}}}
		stream := jsonrpc.Lines(reader{strings.NewReader(text)}, discard{io.Discard}, maxLine)
		conn := jsonrpc.NewConn(t.Context(), stream, func(_ *jsonrpc.Conn, req *jsonrpc.Request) {
			if req.Notif {
				got++
				c.notice(req.Method, req.Params)
			}
		})
		<-conn.DisconnectNotify()
		if got != want {
			t.Errorf("%d notifications of %d", got, want)
		}
	})
}
