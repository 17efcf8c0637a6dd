package companion

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A silentHost has an agent that does not ask, and knows why.
type silentHost struct {
	fakeHost
	why *atomic.Value
}

func (h silentHost) Agents() []AgentKind {
	k := kind("fake", "Fake")
	k.Silent = func(Process) string { return h.why.Load().(string) }
	k.Manual = "press Shift+Tab"
	return []AgentKind{k}
}

// newSilent returns a companion with such an agent.
func newSilent(t *testing.T, why string) (*bare, silentHost) {
	t.Helper()
	h := silentHost{why: new(atomic.Value)}
	h.why.Store(why)
	return newBareWith(t, h), h
}

// The views and the status say that an agent does not ask, until it asks. They say so again
// when there is another reason, such as the answer "don't ask again".
func TestSilent(t *testing.T) {
	c, h := newSilent(t, "it is in auto mode")
	announced, warned := make(chan editor.Clients, 20), make(chan editor.Message, 20)
	c.attach(t, editor.InitializeParams{Diff: true}, editor.Handler{
		Clients:  func(all editor.Clients) { announced <- all },
		DiffOpen: func(editor.Diff) error { return nil },
		Message:  func(m editor.Message) { warned <- m },
	})
	wait := func(want string) {
		t.Helper()
		for {
			if all := systest.Receive(t, announced).Clients; len(all) == 1 && all[0].Silent == want {
				return
			}
		}
	}
	s := newFakeSession()
	s.pid, s.dir = 1, c.dir
	c.connect(t, s)
	wait("it is in auto mode")
	if m := systest.Receive(t, warned); m != (editor.Message{Level: "warning", Text: "it is in auto mode"}) {
		t.Errorf("the message is %+v", m)
	}
	c.proposes(t, s, Proposal{Path: filepath.Join(c.dir, "a.txt"), Text: "new\n"})
	wait("")
	if got := c.Status().Clients[0].Silent; got != "" {
		t.Errorf("after a question the status says %q", got)
	}
	h.why.Store(`"don't ask again"`)
	if got := c.Status().Clients[0].Silent; got != `"don't ask again"` {
		t.Errorf("after the answer the status says %q", got)
	}
	if m := systest.Receive(t, warned); m.Text != `"don't ask again"` {
		t.Errorf("the message is %+v", m)
	}
}

// A key can stop an agent from asking, which Pollux does not see. The list of changes outside
// Pollux says how to be asked again, unless the agent's own line does.
func TestManual(t *testing.T) {
	c, h := newSilent(t, "")
	s := newFakeSession()
	s.pid, s.dir = 1, c.dir
	if got := c.Status().Outside.Manual; got != "" {
		t.Errorf("without an agent: %q", got)
	}
	c.connect(t, s)
	if got := c.Status().Outside.Manual; got != "press Shift+Tab" {
		t.Errorf("with an agent: %q", got)
	}
	h.why.Store("it is in auto mode: press Shift+Tab")
	if got := c.Status().Outside.Manual; got != "" {
		t.Errorf("with an agent that does not ask: %q", got)
	}
	list := editor.Outside{Files: []editor.OutsideFile{{Path: "/a"}}, Manual: "press Shift+Tab"}
	if got, want := list.Note("o"), "1 file changed outside Pollux, without a review; o shows what changed, to keep or undo it. "+
		"To review an agent's next change, press Shift+Tab"; got != want {
		t.Errorf("the note is %q, want %q", got, want)
	}
}

// An agent whose process became known only after its first question was called silent,
// until its next question.
func TestAskedBeforeItIsKnown(t *testing.T) {
	c, h := newSilent(t, "it is in auto mode")
	c.view(t)
	s := c.connect(t, newFakeSession())
	c.proposes(t, s, Proposal{Path: filepath.Join(c.dir, "a.txt"), Text: "new\n"})
	s.moved.Store(&Process{PID: 1, Dir: c.dir})
	c.Changed(s)
	if got := c.Status().Clients[0].Silent; got != "" {
		t.Errorf("the status says %q", got)
	}
	h.why.Store(`"don't ask again"`)
	if got := c.Status().Clients[0].Silent; got != `"don't ask again"` {
		t.Errorf("after the answer the status says %q", got)
	}
}

// The user learns of a change that no view shows, and of no other.
func TestWaiting(t *testing.T) {
	c := newBare(t)
	c.cfg.Page = true // a view may come later
	waiting := make(chan string, 10)
	c.cfg.Waiting = func(_ context.Context, agent, path string) { waiting <- agent + " " + filepath.Base(path) }
	s := c.connect(t, newFakeSession())
	propose := func(name string) {
		t.Helper()
		c.proposes(t, s, Proposal{Path: filepath.Join(c.dir, name), Text: "new\n"})
	}
	propose("a.txt")
	if got := systest.Receive(t, waiting); got != "Fake a.txt" {
		t.Errorf("it says %q", got)
	}
	c.view(t)
	propose("b.txt")
	propose("c.txt")
	c.tasks.wait()
	if len(waiting) > 0 {
		t.Errorf("it says %q although a view shows that", <-waiting)
	}
}
