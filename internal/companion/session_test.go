package companion

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A fakeHost is a host without servers.
type fakeHost struct{}

func (fakeHost) Port() int               { return 1 }
func (fakeHost) Token() string           { return "" }
func (fakeHost) Env() map[string]string  { return nil }
func (fakeHost) SetRoots([]string) error { return nil }
func (fakeHost) Link() (string, error)   { return "", errors.New("no page") }
func (fakeHost) ViewsChanged()           {}
func (fakeHost) Notes() []string         { return nil }
func (fakeHost) Agents() []AgentKind     { return kinds }
func (fakeHost) Prompt(editor.PromptParams, []string) editor.Prompt {
	return editor.Prompt{Text: "of the host"}
}

// A rootsHost changes the workspace's directories while a client reads the environment.
type rootsHost struct {
	fakeHost
	change func()
	roots  string
}

func (h *rootsHost) Env() map[string]string {
	env := map[string]string{"ROOTS": h.roots}
	if change := h.change; change != nil {
		h.change = nil
		change()
	}
	return env
}

func (h *rootsHost) SetRoots(roots []string) error {
	h.roots = roots[0]
	return nil
}

// A client that attaches while the workspace's directories change receives the new
// environment.
func TestAttachWhileRootsChange(t *testing.T) {
	h := &rootsHost{}
	c := newBareWith(t, h)
	other := systest.Dir(t)
	h.change = func() {
		if err := c.SetRoots([]string{other}); err != nil {
			t.Error(err)
		}
	}
	envs := make(chan editor.Env, 10)
	c.attach(t, editor.InitializeParams{}, editor.Handler{Env: func(e editor.Env) { envs <- e }})
	if got := systest.Receive(t, envs).Env["ROOTS"]; got != other {
		t.Errorf("it receives %q, want %q", got, other)
	}
}

// The ignore files of a new directory of the workspace apply immediately.
func TestRootsDecideWhatIsShared(t *testing.T) {
	c := newBare(t)
	other := systest.Dir(t)
	path := filepath.Join(other, "hidden.txt")
	for path, text := range map[string]string{path: "", filepath.Join(other, ".gitignore"): "hidden.txt\n"} {
		systest.WriteFile(t, path, text)
	}
	s := c.connect(t, newFakeSession())
	c.SetContext(editor.Snapshot{Files: []editor.File{{Path: path, Active: true}}})
	systest.Receive(t, s.changed)
	if n := len(c.Context().Files); n != 1 {
		t.Fatalf("%d files, want 1", n)
	}
	if err := c.SetRoots([]string{other}); err != nil {
		t.Fatal(err)
	}
	systest.Receive(t, s.changed)
	if files := c.Context().Files; len(files) > 0 {
		t.Errorf("it shares %v", files)
	}
}

// A fakeSession is an agent with no rules for texts, which waits for the outcome
// of each proposal.
type fakeSession struct {
	name     string
	pid      int
	dir      string
	terminal string
	moved    atomic.Pointer[Process] // if not nil, its process, found after it connected
	changed  chan bool
	outcomes chan resolved

	undelivered bool      // it ends before it receives an outcome
	reads       chan bool // if not nil, it receives outcomes when this is closed
}

// A resolved is one call of Resolve.
type resolved struct {
	Proposal
	Outcome
}

func newFakeSession() *fakeSession {
	return &fakeSession{name: "Fake", changed: make(chan bool, 10), outcomes: make(chan resolved, 10)}
}

func (s *fakeSession) Client() (name, version string) { return s.name, "1" }
func (*fakeSession) Transport() string                { return "test" }
func (*fakeSession) Since() time.Time                 { return time.UnixMilli(1) }
func (s *fakeSession) ContextChanged()                { s.changed <- true }
func (*fakeSession) Shown(original, _ string) string  { return original }
func (*fakeSession) Refuses(_, _, _ string) string    { return "" }
func (*fakeSession) Answer(text, _, _ string) string  { return text }
func (*fakeSession) Written(answer, _ string) string  { return answer }
func (*fakeSession) Holds(onDisk, answer string) bool { return onDisk == answer }
func (*fakeSession) Unwritten() string                { return "" }

func (s *fakeSession) Process() Process {
	if p := s.moved.Load(); p != nil {
		return *p
	}
	return Process{PID: s.pid, Dir: s.dir, Terminal: s.terminal}
}

func (s *fakeSession) Resolve(p Proposal, o Outcome, done func(error)) {
	s.outcomes <- resolved{p, o}
	go func() {
		if s.reads != nil {
			<-s.reads
		}
		if s.undelivered {
			done(errors.New("undelivered"))
		} else {
			done(nil)
		}
	}()
}

// A bare companion has no servers: its agents are fake sessions.
type bare struct {
	*Companion
	dir     string
	journal Journal
}

func newBare(t *testing.T) *bare {
	t.Helper()
	return newBareWith(t, fakeHost{})
}

func newBareWith(t *testing.T, h Host) *bare {
	t.Helper()
	dir := systest.Dir(t)
	j := journal.New(filepath.Join(t.TempDir(), "journal"))
	c, err := New(Config{
		Host: h, Editor: editor.Info{Name: "test", DisplayName: "Test"}, Roots: []string{dir}, Journal: j,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop(); c.Wait() })
	return &bare{c, dir, Journal{j, t}}
}

// connect connects a session and receives its first announcement.
func (b *bare) connect(t *testing.T, s *fakeSession) *fakeSession {
	t.Helper()
	b.Connect(s)
	t.Cleanup(func() { b.Disconnect(s) })
	systest.Receive(t, s.changed)
	return s
}

func (b *bare) proposes(t *testing.T, s Session, p Proposal) {
	t.Helper()
	if err := b.Propose(s, p); err != nil {
		t.Fatal(err)
	}
}

// propose proposes a change, and returns it as a view shows it.
func (b *bare) propose(t *testing.T, s Session, v *View, p Proposal) editor.Diff {
	t.Helper()
	b.proposes(t, s, p)
	return systest.Receive(t, v.Opened)
}

// newReview returns a companion with a view and an agent.
func newReview(t *testing.T) (*bare, *View, *fakeSession) {
	t.Helper()
	b := newBare(t)
	return b, b.view(t), b.connect(t, newFakeSession())
}

// A limitedSession is an agent that cannot do everything.
type limitedSession struct{ *fakeSession }

func (limitedSession) Limits() string { return "no review" }

// The status says what an agent cannot do.
func TestLimits(t *testing.T) {
	c := newBare(t)
	c.Connect(newFakeSession())
	c.Connect(limitedSession{newFakeSession()})
	var limits []string
	for _, a := range c.Status().Clients {
		limits = append(limits, a.Limits)
	}
	if slices.Sort(limits); !slices.Equal(limits, []string{"", "no review"}) {
		t.Errorf("the limits are %q", limits)
	}
}

// attach attaches a client.
func (b *bare) attach(t *testing.T, p editor.InitializeParams, h editor.Handler) *editor.Client {
	t.Helper()
	c, _ := attachClient(t, b.Attach, p, h)
	return c
}

// view attaches a view.
func (b *bare) view(t *testing.T) *View {
	t.Helper()
	return NewView(t, b.Attach)
}

// The user accepts an edited text, but the file has changed on disk. The text that the
// agent and the journal get, if the user then answers in the agent's terminal, is this
// one, also if the editor does not say it again. It was the one before.
func TestConflictKeepsTheText(t *testing.T) {
	c, v, s := newReview(t)
	other := c.view(t)
	path := filepath.Join(c.dir, "f")
	systest.WriteFile(t, path, "old\n")
	d := c.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
	systest.Receive(t, other.Opened)
	systest.WriteFile(t, path, "theirs\n")
	if res, err := v.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"}); err != nil || res.Status != editor.StatusConflict {
		t.Fatalf("%+v, %v", res, err)
	}
	list, err := other.Diffs(t.Context())
	if err != nil || len(list) != 1 || list[0].Text() != "mine\n" {
		t.Errorf("another client sees %+v, %v", list, err)
	}
	if text, err := c.Withdraw(s, path); err != nil || text != "mine\n" {
		t.Errorf("the agent receives %q, %v", text, err)
	}
	c.journal.Keeps(d.ID, "mine\n")
}

// The core has no agent's rules. An agent without rules receives every text
// unchanged, even an empty one, and all open files; a restore writes what such
// an agent would.
func TestAgentWithoutRules(t *testing.T) {
	c := newBare(t)
	e := c.view(t)
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
	s := c.connect(t, newFakeSession())
	if got := ask(); got != "of fake: ." {
		t.Errorf("with an agent the prompt is that %s", got)
	}

	path := filepath.Join(c.dir, "f")
	for _, accepted := range []string{"", "new\n", "\uFEFFold\r\n"} {
		systest.WriteFile(t, path, "\uFEFFold\r\n")
		d := c.propose(t, s, e, Proposal{Path: path, Text: "new\n"})
		if d.Original != "\uFEFFold\r\n" || d.Agent != "Fake" || d.Client != "Fake 1" {
			t.Errorf("shown: %+v", d)
		}
		e.Accepts(d, accepted)
		if got := systest.Receive(t, s.outcomes); got.Outcome != (Outcome{Accepted: true, Text: accepted}) {
			t.Errorf("the agent received %+v, want %q", got, accepted)
		}
		systest.WriteFile(t, path, accepted)
		e.WantClosed(d, editor.ReasonAccepted)
		copied := filepath.Join(c.dir, "copy")
		if _, err := c.journal.Restore(d.ID, copied); err != nil {
			t.Fatal(err)
		}
		systest.WantFile(t, copied, accepted)
	}

	var open []editor.File
	for _, p := range files(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l") {
		open = append(open, editor.File{Path: p})
	}
	c.SetContext(editor.Snapshot{Files: open})
	systest.Receive(t, s.changed)
	if got := len(c.Context().Files); got != len(open) {
		t.Errorf("the agent may receive %d files of %d", got, len(open))
	}
}

// An agent may write doubled slashes, and on Windows slashes. Editors and the journal get the name
// that editors use, and the agent gets its own back. All spellings are one diff of a session.
func TestSpellingsOfAPath(t *testing.T) {
	c, v, s := newReview(t)
	path := filepath.Join(c.dir, "f")
	systest.WriteFile(t, path, "old\n")
	dir := filepath.ToSlash(c.dir)
	spellings := []string{dir + "/f", dir + "//f", dir + "/.///f", dir + "/./f", dir + "/f/"}
	for i, spelling := range spellings {
		p := Proposal{Path: spelling, Text: "new\n"}
		open := func() editor.Diff {
			t.Helper()
			d := c.propose(t, s, v, p)
			if d.Path != path || !d.Exists || d.Original != "old\n" {
				t.Errorf("the view shows %+v", d)
			}
			return d
		}
		wants := func(o Outcome) {
			t.Helper()
			if got := systest.Receive(t, s.outcomes); got != (resolved{p, o}) {
				t.Errorf("the agent received %+v, want %+v", got, o)
			}
		}
		other := spellings[(i+1)%len(spellings)]
		v.Accepts(open(), "old\n")
		wants(Outcome{Accepted: true, Text: "old\n"})
		v.Rejects(open())
		wants(Outcome{})
		open()
		c.propose(t, s, v, Proposal{Path: other, Text: "newer\n"})
		wants(Outcome{Superseded: true})
		for _, none := range []string{dir + "/x/../f", "f", ""} {
			if text, err := c.Withdraw(s, none); err == nil {
				t.Errorf("%q is open: %q", none, text)
			}
		}
		if text, err := c.Withdraw(s, spelling); err != nil || text != "newer\n" {
			t.Errorf("the agent received %q, %v", text, err)
		}
	}
	entries, err := c.journal.List()
	if err != nil || len(entries) != 4*len(spellings) {
		t.Fatalf("the journal has %d entries, %v", len(entries), err)
	}
	for _, entry := range entries {
		if entry.Path != path || entry.Real != path {
			t.Errorf("the journal has %+v", entry)
		}
	}
}

// The context changed after an agent had opened its stream, and before Connect:
// the agent kept the old context until the next change.
func TestConnectAnnouncesTheContext(t *testing.T) {
	c := newBare(t)
	first := c.connect(t, newFakeSession())
	c.SetContext(editor.Snapshot{Files: []editor.File{{Path: files(t, "f")[0]}}})
	systest.Receive(t, first.changed) // the context is there now

	second := newFakeSession()
	c.Connect(second)
	defer c.Disconnect(second)
	systest.Receive(t, second.changed)
	if got := len(c.Context().Files); got != 1 {
		t.Errorf("the agent receives %d files, want 1", got)
	}
	if len(first.changed) > 0 {
		t.Error("the context was also announced to the other agent")
	}
}

// While several agents have one name, a change says which one proposes it.
func TestAgentsOfOneName(t *testing.T) {
	c := newBare(t)
	e := c.view(t)
	agent := func(name, terminal string, pid int) *fakeSession {
		s := newFakeSession()
		s.name, s.terminal, s.pid = name, terminal, pid
		return c.connect(t, s)
	}
	want := func(s *fakeSession, name string) {
		t.Helper()
		if d := c.propose(t, s, e, Proposal{Path: filepath.Join(c.dir, "f"), Text: "new\n"}); d.Agent != name {
			t.Errorf("the change is from %q, want %q", d.Agent, name)
		}
	}
	first := agent("Fake", "pts/1", 11)
	want(first, "Fake")
	agent("Other", "pts/2", 12)
	want(first, "Fake")
	second := agent("Fake", "pts/3", 13)
	want(first, "Fake (pts/1)")
	want(second, "Fake (pts/3)")
	third := agent("Fake", "pts/3", 14) // the second one is suspended
	want(second, "Fake (pid 13)")
	want(third, "Fake (pid 14)")
	want(first, "Fake (pts/1)")
	unknown := agent("Fake", "", 0)
	want(unknown, "Fake (since "+unknown.Since().Format("15:04:05")+")")
	for _, s := range []*fakeSession{second, third, unknown} {
		c.Disconnect(s)
	}
	want(first, "Fake")
}

// An agent may send an empty name.
func TestAgentWithoutName(t *testing.T) {
	c := newBare(t)
	e := c.view(t)
	s := newFakeSession()
	s.name = ""
	c.connect(t, s)
	d := c.propose(t, s, e, Proposal{Path: filepath.Join(c.dir, "f"), Text: "new\n"})
	if d.Agent != "the agent" || d.Client != "the agent 1" {
		t.Errorf("shown: %+v", d)
	}
	_, err := e.Save(t.Context(), editor.DiffAccept{ID: d.ID, Content: "new\n"})
	systest.WantError(t, err, "the agent still waits")
	c.Disconnect(s)
	if m := e.Reads(); !strings.HasPrefix(m.Text, "the agent, which proposed the change to ") {
		t.Errorf("the user reads %q", m.Text)
	}
}

// An agent's call may be blocked until its proposal is resolved, so a proposal
// without a decision is resolved, too.
func TestEveryProposalIsResolved(t *testing.T) {
	c, e, s := newReview(t)
	propose := func(path, text string) Proposal {
		t.Helper()
		p := Proposal{Path: path, Text: text}
		c.proposes(t, s, p)
		return p
	}
	wants := func(p Proposal, o Outcome) {
		t.Helper()
		if got := systest.Receive(t, s.outcomes); got != (resolved{p, o}) {
			t.Errorf("the agent received %+v, want %+v for %+v", got, o, p)
		}
	}
	file, outside := filepath.Join(c.dir, "f"), filepath.Join(filepath.Dir(c.dir), "outside")

	// Superseded, whether it was shown or not, and before the next outcome for
	// the file.
	first := propose(file, "1\n")
	old := systest.Receive(t, e.Opened)
	second := propose(file, "2\n")
	wants(first, Outcome{Superseded: true})
	e.WantClosed(old, editor.ReasonSuperseded)
	if _, err := e.Accept(t.Context(), editor.DiffAccept{ID: old.ID, Content: "1\n"}); err == nil {
		t.Error("the superseded diff was accepted")
	}
	d := systest.Receive(t, e.Opened)
	e.Rejects(d)
	wants(second, Outcome{})
	first = propose(outside, "1\n")
	propose(outside, "2\n")
	wants(first, Outcome{Superseded: true})

	// Withdraw has a result instead.
	if _, err := c.Withdraw(s, outside); err != nil {
		t.Fatal(err)
	}

	// Nothing follows for an agent that has ended.
	gone := c.connect(t, newFakeSession())
	for _, path := range []string{file, outside} {
		c.proposes(t, gone, Proposal{Path: path, Text: "3\n"})
	}
	d = systest.Receive(t, e.Opened)
	c.Disconnect(gone)
	e.Rejects(d)

	// The end of the companion.
	shown := propose(file, "4\n")
	systest.Receive(t, e.Opened)
	hidden := propose(outside, "4\n")
	c.Stop()
	wants(shown, Outcome{})
	wants(hidden, Outcome{Failed: true})
	if len(s.outcomes)+len(gone.outcomes) > 0 {
		t.Errorf("there are %d and %d more outcomes", len(s.outcomes), len(gone.outcomes))
	}
}

// A stuck is a connection whose writes last until it is released.
type stuck struct {
	net.Conn
	now      atomic.Bool
	released chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.now.Load() {
		<-s.released
	}
	return s.Conn.Write(b)
}

// A view that leaves before it has said that it shows a change rejects the change, even
// if it takes a moment to detach the view. An error would make the agent ask in the
// terminal.
func TestViewLeavesBeforeItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBare(t)
		mine, theirs := net.Pipe()
		conn := &stuck{Conn: theirs, released: make(chan struct{})}
		attached := make(chan struct{})
		go func() {
			defer close(attached)
			c.Attach(conn)
		}()
		opened, answer := make(chan bool, 1), make(chan bool)
		e := editor.NewClient(mine, editor.Handler{DiffOpen: func(editor.Diff) error {
			opened <- true
			<-answer
			return nil
		}})
		if _, err := e.Initialize(t.Context(), editor.InitializeParams{Diff: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Status(t.Context()); err != nil { // now it is attached
			t.Fatal(err)
		}
		s := c.connect(t, newFakeSession())
		defer func() {
			close(conn.released)
			close(answer)
			<-attached
			c.Disconnect(s)
		}()
		p := Proposal{Path: filepath.Join(c.dir, "f"), Text: "new\n"}
		shown := make(chan error, 1)
		go func() { shown <- c.Propose(s, p) }()
		systest.Receive(t, opened)
		conn.now.Store(true)
		c.tell("info", "a message that no client reads")
		synctest.Wait()
		e.Close()
		if err := systest.Receive(t, shown); err != nil {
			t.Errorf("the agent received an error: %v", err)
		}
		if got := systest.Receive(t, s.outcomes); got != (resolved{p, Outcome{}}) {
			t.Errorf("the agent received %+v", got)
		}
	})
}
