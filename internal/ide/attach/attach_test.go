package attach

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/mcp"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A session is the session of an agent's package.
type session struct {
	*mcp.Session
	companion.TextRules
}

func (s *session) Client() (name, version string)                           { return s.ClientInfo() }
func (*session) Transport() string                                          { return "test" }
func (*session) Process() (p companion.Process)                             { return p }
func (*session) ContextChanged()                                            {}
func (*session) Resolve(companion.Proposal, companion.Outcome, func(error)) {}

// A backend records the sessions that the companion has.
type backend struct {
	Backend // the methods that are not used
	events  chan string
}

func (b *backend) Connect(s companion.Session)    { b.events <- "has " + s.Transport() }
func (b *backend) Disconnect(s companion.Session) { b.events <- "had " + s.Transport() }

// The companion has a session from notifications/initialized until its end, which the log says.
func TestNewSession(t *testing.T) {
	var log bytes.Buffer
	b := &backend{events: make(chan string, 10)}
	c := Companion{
		Backend: b, Log: slog.New(slog.NewTextHandler(&log, nil)), Version: "1", Editor: editor.Info{DisplayName: "Test"},
	}
	s := &session{}
	var err error
	s.Session, err = c.NewSession(c.Server(1, nil), s, mcp.Dialect{Connected: func() { b.events <- "connected" }})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		s.Serve(mcp.Lines(ours, mcp.MaxMessage))
	}()
	answer := json.NewDecoder(theirs)
	theirs.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"agent","version":"1.2"}}}` + "\n"))
	var hello struct {
		Result struct {
			ServerInfo struct{ Title, Version string }
		}
	}
	if err := answer.Decode(&hello); err != nil || hello.Result.ServerInfo.Title != "Test" || hello.Result.ServerInfo.Version != "1" {
		t.Errorf("%+v, %v", hello, err)
	}
	theirs.Write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"))
	for _, want := range []string{"has test", "connected"} {
		if got := <-b.events; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	theirs.Close()
	if got := <-b.events; got != "had test" {
		t.Error(got)
	}
	<-ended
	for _, want := range []string{`msg="an agent connected" client=agent version=1.2 transport=test`, `msg="an agent has disconnected" transport=test`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is %s, want %s", log.String(), want)
		}
	}
}

// A text that cannot go through an editor is marked, even if the message escapes it.
func TestNewProposal(t *testing.T) {
	for _, tt := range []struct{ args, says string }{ // an error, or why it is binary
		{`{"path":"/f","text":"a\ufffdb"}`, ""},
		{`{"path":"/f","text":"a` + "\uFFFD" + `b"}`, ""},
		{`{"path":"/f","text":"😀 \ud83d\ude00"}`, ""},
		{`{"path":"/f","text":"<&>\u2028"}`, ""},
		{`{"path":"/f","text":""}`, ""},
		{`{}`, "path is missing"},
		{`{"text":"x"}`, "path is missing"},
		{`{"path":"/f"}`, "text is missing"},
		{`{"path":"/f","text":null}`, "text is missing"},
		{`{"path":"/f","text":"a\u0000b"}`, "the proposal holds NUL"},
		{`{"path":"/f\u0000","text":"a"}`, "path holds a NUL"},
		{`{"path":"/f","text":"a\ud83d"}`, "UTF-8"},
		{"{\"path\":\"/f\",\"text\":\"a\xff\"}", "UTF-8"},
	} {
		var a struct {
			Path string
			Text *string
		}
		if err := json.Unmarshal([]byte(tt.args), &a); err != nil {
			t.Fatal(err)
		}
		p, err := NewProposal([]byte(tt.args), "path", a.Path, "text", a.Text)
		got := p.Binary
		if err != nil {
			got = err.Error()
		}
		if tt.says == "" && got != "" || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %q, want %q", tt.args, got, tt.says)
		}
		if err == nil && (p.Path != a.Path || p.Text != *a.Text) {
			t.Errorf("%s: %+v", tt.args, p)
		}
	}
}
