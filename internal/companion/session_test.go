package companion

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
)

// A fakeHost is a host without servers.
type fakeHost struct{}

func (fakeHost) Port() int               { return 1 }
func (fakeHost) Token() string           { return "" }
func (fakeHost) Env() map[string]string  { return nil }
func (fakeHost) SetRoots([]string) error { return nil }
func (fakeHost) Link() (string, error)   { return "", errors.New("no page") }
func (fakeHost) Unpublish()              {}
func (fakeHost) Prompt(editor.PromptParams, []string) editor.Prompt {
	return editor.Prompt{Text: "of the host"}
}

// A fakeSession is an agent with no rules for texts, which waits for the outcome
// of each proposal.
type fakeSession struct {
	changed  chan bool
	outcomes chan Outcome
}

func newFakeSession() *fakeSession {
	return &fakeSession{changed: make(chan bool, 10), outcomes: make(chan Outcome, 10)}
}

func (*fakeSession) Client() (name, version string)   { return "Fake", "1" }
func (*fakeSession) Transport() string                { return "test" }
func (*fakeSession) Since() time.Time                 { return time.UnixMilli(1) }
func (s *fakeSession) ContextChanged()                { s.changed <- true }
func (*fakeSession) Shown(original, _ string) string  { return original }
func (*fakeSession) Refuses(_, _ string) string       { return "" }
func (*fakeSession) Answer(text, _, _ string) string  { return text }
func (*fakeSession) Written(answer, _ string) string  { return answer }
func (*fakeSession) Holds(onDisk, answer string) bool { return onDisk == answer }
func (*fakeSession) Unwritten() string                { return "" }
func (*fakeSession) Prompt(editor.PromptParams, []string) editor.Prompt {
	return editor.Prompt{Text: "of the session"}
}

func (s *fakeSession) Resolve(_ Proposal, o Outcome, done func(error)) {
	s.outcomes <- o
	go done(nil)
}

// The core has no agent's rules. An agent without rules receives every text
// unchanged, even an empty one, and all open files.
func TestAgentWithoutRules(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Host: fakeHost{}, Editor: editor.Info{Name: "test", DisplayName: "Test"}, Roots: []string{dir},
		Journal: journal.New(filepath.Join(t.TempDir(), "journal")),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { c.Stop(); c.Wait() }()
	opened, closed := make(chan editor.Diff, 10), make(chan editor.DiffClose, 10)
	mine, theirs := net.Pipe()
	go c.Attach(theirs)
	e := editor.NewClient(mine, editor.Handler{
		DiffOpen:  func(d editor.Diff) error { opened <- d; return nil },
		DiffClose: func(d editor.DiffClose) *string { closed <- d; return nil },
	})
	defer e.Close()
	if _, err := e.Initialize(t.Context(), editor.InitializeParams{Diff: true}); err != nil {
		t.Fatal(err)
	}
	ask := func() string {
		t.Helper()
		var p editor.Prompt
		if err := e.Call(t.Context(), editor.MethodPrompt, editor.PromptParams{}, &p); err != nil {
			t.Fatal(err)
		}
		return p.Text
	}
	if got := ask(); got != "of the host" {
		t.Errorf("without an agent the prompt is that %s", got)
	}
	s := newFakeSession()
	c.Connect(s)
	defer c.Disconnect(s)
	if got := ask(); got != "of the session" {
		t.Errorf("with an agent the prompt is that %s", got)
	}

	path := filepath.Join(dir, "f")
	for _, accepted := range []string{"", "new\n", "\uFEFFold\r\n"} {
		if err := os.WriteFile(path, []byte("\uFEFFold\r\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.Propose(t.Context(), s, Proposal{Path: path, Text: "new\n"}); err != nil {
			t.Fatal(err)
		}
		d := receive(t, opened)
		if d.Original != "\uFEFFold\r\n" || d.Agent != "Fake" || d.Client != "Fake 1" {
			t.Errorf("shown: %+v", d)
		}
		if res, err := e.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: accepted}); err != nil || res.Status != editor.StatusAccepted {
			t.Fatalf("accept of %q = %+v, %v", accepted, res, err)
		}
		if got := receive(t, s.outcomes); got != (Outcome{Accepted: true, Text: accepted}) {
			t.Errorf("the agent received %+v, want %q", got, accepted)
		}
		if err := os.WriteFile(path, []byte(accepted), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, closed); got.Reason != editor.ReasonAccepted {
			t.Errorf("closed: %+v", got)
		}
	}

	var open []editor.File
	for _, p := range files(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l") {
		open = append(open, editor.File{Path: p})
	}
	c.SetContext(editor.Snapshot{Files: open})
	receive(t, s.changed)
	if got := len(c.Context().Files); got != len(open) {
		t.Errorf("the agent may receive %d files of %d", got, len(open))
	}
}
