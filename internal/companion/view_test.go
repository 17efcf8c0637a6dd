package companion

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A View is an attached client that shows diffs, and records what it receives.
type View struct {
	*editor.Client
	Info     editor.InitializeResult
	Opened   chan editor.Diff
	Closed   chan editor.DiffClose
	Changed  chan editor.DiffChange
	Messages chan editor.Message
	Envs     chan editor.Env
	Files    chan editor.FileChanged
	t        *testing.T

	Mu    sync.Mutex        // while it is held, the view answers nothing about diffs
	Fail  error             // the answer to diffs that open
	texts map[string]string // what the user has typed, by the ID of the diff
}

// NewView attaches a view.
func NewView(t *testing.T, attach func(io.ReadWriteCloser)) *View {
	t.Helper()
	const many = 2000 // more than any test leaves unread
	v := &View{
		Opened: make(chan editor.Diff, many), Closed: make(chan editor.DiffClose, many), Changed: make(chan editor.DiffChange, many),
		Messages: make(chan editor.Message, many), Envs: make(chan editor.Env, many), Files: make(chan editor.FileChanged, many),
		t: t, texts: make(map[string]string),
	}
	v.Client, v.Info = attachClient(t, attach, editor.InitializeParams{Client: editor.Implementation{Name: "test"}, Diff: true}, editor.Handler{
		DiffOpen: func(d editor.Diff) error {
			v.Mu.Lock()
			defer v.Mu.Unlock()
			if v.Fail == nil {
				v.Opened <- d
			}
			return v.Fail
		},
		DiffClose: func(c editor.DiffClose) *string {
			v.Closed <- c
			v.Mu.Lock()
			defer v.Mu.Unlock()
			if text, ok := v.texts[c.ID]; ok {
				return &text
			}
			return nil
		},
		DiffChanged: func(c editor.DiffChange) { v.Changed <- c },
		Message:     func(m editor.Message) { v.Messages <- m },
		Env:         func(env editor.Env) { v.Envs <- env },
		FileChanged: func(f editor.FileChanged) { v.Files <- f },
	})
	return v
}

// attachClient attaches a client. It leaves at the end of the test.
func attachClient(t *testing.T, attach func(io.ReadWriteCloser), p editor.InitializeParams, h editor.Handler) (*editor.Client, editor.InitializeResult) {
	t.Helper()
	mine, theirs := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		attach(theirs)
	}()
	c := editor.NewClient(mine, h)
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	info, err := c.Initialize(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil { // now it is attached
		t.Fatal(err)
	}
	return c, info
}

// Settle waits until the companion has handled the view's messages, and the view has received
// everything sent before that.
func (v *View) Settle() {
	v.t.Helper()
	if _, err := v.Status(v.t.Context()); err != nil {
		v.t.Fatal(err)
	}
}

func (v *View) Accepts(d editor.Diff, text string) {
	v.t.Helper()
	res, err := v.Accept(v.t.Context(), editor.DiffAccept{ID: d.ID, Content: text})
	if err != nil || res.Status != editor.StatusAccepted {
		v.t.Fatalf("accept of %q = %+v, %v", text, res, err)
	}
}

func (v *View) Rejects(d editor.Diff) {
	v.t.Helper()
	if err := v.Reject(v.t.Context(), d.ID); err != nil {
		v.t.Fatal(err)
	}
}

func (v *View) Saves(d editor.Diff, text string) {
	v.t.Helper()
	res, err := v.Save(v.t.Context(), editor.DiffAccept{ID: d.ID, Content: text})
	if err != nil || res.Status != editor.StatusAccepted {
		v.t.Fatalf("save of %q = %+v, %v", text, res, err)
	}
}

// Edits returns when the companion has the edit.
func (v *View) Edits(d editor.Diff, text string) {
	v.t.Helper()
	if err := v.Edit(d.ID, text); err != nil {
		v.t.Fatal(err)
	}
	v.Settle()
}

// Types sets the text that the view has when the diff ends.
func (v *View) Types(d editor.Diff, text string) {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	v.texts[d.ID] = text
}

// Reads checks the next message to the user.
func (v *View) Reads(parts ...string) editor.Message {
	v.t.Helper()
	m := systest.Receive(v.t, v.Messages)
	for _, part := range parts {
		if !strings.Contains(m.Text, part) {
			v.t.Errorf("the user reads %q, without %q", m.Text, part)
		}
	}
	return m
}

// ReadsNoMore checks that all messages to the user were expected.
func (v *View) ReadsNoMore() {
	v.t.Helper()
	if len(v.Messages) > 0 {
		v.t.Errorf("the user also reads %+v", <-v.Messages)
	}
}

// WantClosed checks which diff the view closes next, and why.
func (v *View) WantClosed(d editor.Diff, reason string) {
	v.t.Helper()
	if got := systest.Receive(v.t, v.Closed); got != (editor.DiffClose{ID: d.ID, Reason: reason}) {
		v.t.Errorf("closed %+v, want %s: %s", got, d.ID, reason)
	}
}

// A Journal is a companion's journal, with the test that looks at it.
type Journal struct {
	*journal.Journal
	T *testing.T
}

// Keeps checks the text that the journal has.
func (j Journal) Keeps(id, want string) {
	j.T.Helper()
	if text, err := j.Text(id); err != nil || text != want {
		j.T.Errorf("the journal has %q, %v; want %q", text, err, want)
	}
}

// Records checks how the journal says that a change ended.
func (j Journal) Records(id string, state journal.State, unwritten bool) {
	j.T.Helper()
	if e, err := j.Get(id); err != nil || e.State != state || e.Unwritten != unwritten {
		j.T.Errorf("the journal has %+v, %v; want %s, unwritten %v", e, err, state, unwritten)
	}
}
