package blocking

import (
	"context"
	"encoding/json"
	"sync"
	"time"
	"unicode/utf16"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/mcp"
	"pollux/internal/jsonrpc"
	"pollux/internal/outbox"
	"pollux/internal/paths"
)

// MethodSelection is the method of the notification that carries a [Selection].
const MethodSelection = "selection_changed"

// MaxSelection bounds a selected text in characters. The agents send their models less.
const MaxSelection = 16 << 10

// A Selection is the only context that the agents take: one file and one selection.
// Without a file nothing is open.
type Selection struct {
	Text     string `json:"text"`
	FilePath string `json:"filePath"`
	FileURL  string `json:"fileUrl"`
	Span     Span   `json:"selection"`
}

// A Span is where a selection is. Its positions count from 0.
type Span struct {
	Start   Position `json:"start"`
	End     Position `json:"end"`
	IsEmpty bool     `json:"isEmpty"`
}

// A Position is a line and a character in it, which count from 0.
type Position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// NewSelection returns the message for a context. shift is added to each line, for an
// agent that shows the numbers as they are. The agents do not check the path, so
// NewSelection leaves out a file outside the roots. It reads the disk.
func NewSelection(c companion.Context, roots []string, shift int) Selection {
	m := Selection{Span: Span{IsEmpty: true}}
	if len(c.Files) == 0 || !c.Files[0].Active {
		return m
	}
	f := c.Files[0]
	path, ok := paths.In(roots, f.Path)
	if !ok {
		return m
	}
	m.FilePath, m.FileURL = path, FileURL(path)
	if f.Cursor == nil {
		return m
	}
	at := f.SelectionRange()
	m.Span.Start, m.Span.End = newPosition(at.Start, shift), newPosition(at.End, shift)
	m.Text, m.Span.IsEmpty = cut(f.Selection, MaxSelection), f.Selection == ""
	return m
}

func newPosition(c editor.Cursor, shift int) Position {
	return Position{c.Line - 1 + shift, c.Character - 1}
}

// cut returns at most limit UTF-16 code units of a text.
func cut(text string, limit int) string {
	units := 0
	for i, r := range text {
		if units += utf16.RuneLen(r); units > limit {
			return text[:i]
		}
	}
	return text
}

// FileURL returns the file URL of an absolute path.
func FileURL(path string) string {
	return paths.ToURL(path)
}

// Messages encodes the context once for all sessions of a server. The zero value is
// usable.
type Messages struct {
	mu   sync.Mutex
	last [2]encodedSelection // two: an agent may have another shift; the newest first
}

type encodedSelection struct {
	selection Selection
	params    json.RawMessage
}

// encode returns a selection as JSON. The caller must not change it.
func (ms *Messages) encode(m Selection) (json.RawMessage, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, e := range ms.last {
		if e.params != nil && e.selection == m {
			return e.params, nil
		}
	}
	params, err := jsonrpc.Encode(m)
	if err == nil {
		ms.last = [2]encodedSelection{{m, params}, ms.last[0]}
	}
	return params, err
}

// A Feed sends the context to one agent.
type Feed struct {
	Backend Backend
	// Shift returns the shift of [NewSelection]; no shift if nil.
	Shift func() int
	// Send sends a message, and returns when it is written. After an error the session ends.
	Send    func(Selection) error
	OnPanic mcp.OnPanic
	// Delays are the times after which the context is sent again, because the agent
	// may have dropped it. The first one is 0.
	Delays []time.Duration
	// SkipNothing is set for an agent that shows something odd if a message says that
	// nothing is open before one has named a file.
	SkipNothing bool

	wake    outbox.Signal // the context has changed
	refresh outbox.Signal // the agent may have dropped the context: send it again
	work    chan func()   // of Do
}

// NewFeed returns a feed with the exported fields of f.
func NewFeed(f Feed) *Feed {
	f.wake, f.refresh = outbox.NewSignal(), outbox.NewSignal()
	f.work = make(chan func())
	return &f
}

// Changed announces that the context has changed. It does not wait.
func (f *Feed) Changed() { f.wake.Set() }

// Refresh announces that the agent may have dropped the context. It does not wait.
func (f *Feed) Refresh() { f.refresh.Set() }

// Do runs a function between two messages of the feed, and returns its error, or the
// cause if ctx ends first. The function may still run then.
func (f *Feed) Do(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	select {
	case f.work <- func() { done <- work() }:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run sends the context whenever it has changed, and again when the agent may have
// dropped it, until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	defer f.OnPanic.Report()
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now()
	left := f.Delays
	var sent Selection
	first, named := true, false // named: a file was sent
	for {
		again := false
		select {
		case <-f.wake:
		case work := <-f.work:
			work()
			continue
		case <-f.refresh:
			refreshed, left = time.Now(), f.Delays
			timer.Reset(0)
			continue
		case <-timer.C:
			again = true
			if left = left[1:]; len(left) > 0 {
				timer.Reset(time.Until(refreshed.Add(left[0])))
			}
		case <-ctx.Done():
			return
		}
		m, ok := f.Selection(ctx)
		if !ok {
			return
		}
		if m == sent && !again && !first || f.SkipNothing && m.FilePath == "" && !named {
			continue
		}
		if f.Send(m) != nil {
			return // the session ends
		}
		sent, first, named = m, false, named || m.FilePath != ""
	}
}

// Selection returns the message for the context as it is now. It reports false if ctx
// ends while a disk does not answer.
func (f *Feed) Selection(ctx context.Context) (m Selection, ok bool) {
	shift := 0
	if f.Shift != nil {
		shift = f.Shift()
	}
	answer := make(chan Selection, 1)
	go func() {
		defer f.OnPanic.Report()
		answer <- NewSelection(f.Backend.Context(), f.Backend.Roots(), shift)
	}()
	select {
	case m = <-answer:
		return m, true
	case <-ctx.Done():
		return m, false
	}
}
