package blocking

import (
	"context"
	"time"
	"unicode/utf16"

	"pollux/internal/companion"
	"pollux/internal/crash"
	"pollux/internal/editor"
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
	m.FilePath, m.FileURL = path, paths.ToURL(path)
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

// ContextChanged implements [companion.Session].
func (s *Session) ContextChanged() { s.changed.Set() }

// Refresh announces that the agent may have dropped the context. It does not wait.
func (s *Session) Refresh() { s.dropped.Set() }

// Between runs a function between two messages with the context, and returns its error, or the
// cause if ctx ends first. The function may still run then.
func (s *Session) Between(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case s.between <- func() { done <- f() }:
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

// sendContext sends the context whenever it has changed, and again when the agent may have
// dropped it, until the session ends.
func (s *Session) sendContext() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now()
	left := s.dialect.Delays
	var sent Selection
	first, named := true, false // named: a file was sent
	for {
		again := false
		select {
		case <-s.changed:
		case f := <-s.between:
			f()
			continue
		case <-s.dropped:
			refreshed, left = time.Now(), s.dialect.Delays
			timer.Reset(0)
			continue
		case <-timer.C:
			again = true
			if left = left[1:]; len(left) > 0 {
				timer.Reset(time.Until(refreshed.Add(left[0])))
			}
		case <-s.Ctx.Done():
			return
		}
		m, ok := s.Selection(s.Ctx)
		if !ok {
			return
		}
		if m == sent && !again && !first || s.dialect.SkipNothing && m.FilePath == "" && !named {
			continue
		}
		// Without a stream, the next one begins with the context as it is then.
		if !s.Muted() && s.Send(s.Ctx, MethodSelection, m) != nil {
			return // the session ends
		}
		sent, first, named = m, false, named || m.FilePath != ""
	}
}

// Selection returns the message for the context as it is now. It reports false if ctx
// ends while a disk does not answer.
func (s *Session) Selection(ctx context.Context) (m Selection, ok bool) {
	shift := 0
	if s.dialect.Shift != nil {
		shift = s.dialect.Shift()
	}
	answer := make(chan Selection, 1)
	go func() {
		defer crash.Report()
		answer <- NewSelection(s.backend.Context(), s.backend.Roots(), shift)
	}()
	select {
	case m = <-answer:
		return m, true
	case <-ctx.Done():
		return m, false
	}
}
