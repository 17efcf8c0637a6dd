package companion_test

import (
	"reflect"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// Requests that save plugins from implementing the same logic.

func TestHunksOfADiff(t *testing.T) {
	w := newWorld(t)
	c, e := w.connect(), w.view()
	d := w.propose(c, e, w.file("f", "a\r\nb\r\nc\r\n"), "a\nX\nc\nd")
	call := func(method string, params, result any) error {
		return e.Call(t.Context(), method, params, result)
	}
	var hunks editor.DiffHunks
	if err := call(editor.MethodDiffHunks, editor.DiffText{ID: d.ID, Content: d.Proposed}, &hunks); err != nil {
		t.Fatal(err)
	}
	want := []editor.DiffHunk{
		{Line: 2, Lines: 1, Original: 2, OriginalLines: 1, Removed: []string{"b"}},
		{Line: 4, Lines: 1, Original: 4, Removed: []string{}},
	}
	if !reflect.DeepEqual(hunks.Hunks, want) {
		t.Errorf("hunks = %+v, want %+v", hunks.Hunks, want)
	}
	take := func(content string, line int, what string) (edit editor.DiffEdit, err error) {
		return edit, call(editor.MethodDiffHunk, editor.DiffTake{DiffText: editor.DiffText{ID: d.ID, Content: content}, Line: line, Take: what}, &edit)
	}
	for _, test := range []struct {
		content string
		line    int
		take    string
		want    editor.DiffEdit
		err     string
	}{
		{d.Proposed, 2, "original", editor.DiffEdit{Line: 2, Lines: 1, Text: "b\n"}, ""},
		{d.Proposed, 4, "original", editor.DiffEdit{Line: 4, Lines: 1, EOL: true}, ""},
		{"a\nb\nc\nd", 2, "proposed", editor.DiffEdit{Line: 2, Lines: 1, Text: "X\n"}, ""},
		{"a\nX\nc\n", 3, "proposed", editor.DiffEdit{Line: 4, Text: "d"}, ""},
		{d.Proposed, 1, "original", editor.DiffEdit{}, "nothing to undo"},
		{d.Proposed, 2, "proposed", editor.DiffEdit{}, "as proposed"},
		{d.Proposed, 2, "mine", editor.DiffEdit{}, "use original or proposed"},
	} {
		got, err := take(test.content, test.line, test.take)
		if test.err != "" {
			systest.WantError(t, err, test.err)
		} else if err != nil || got != test.want {
			t.Errorf("%s of line %d of %q = %+v, %v; want %+v", test.take, test.line, test.content, got, err, test.want)
		}
	}
	systest.WantError(t, call(editor.MethodDiffHunks, editor.DiffText{ID: "none"}, &hunks), "no such diff")
}

// The editor is notified as soon as its file has been written completely: after
// an accept, and when a CLI writes without asking.
func TestFileChanged(t *testing.T) {
	t.Parallel()
	w, c, e, path := newReview(t)
	changed := func(path string) {
		t.Helper()
		if got := systest.Receive(t, e.Files); got.Path != path {
			t.Errorf("changed: %q, want %q", got.Path, path)
		}
	}
	e.Accepts(w.propose(c, e, path, "new\n"), "new\n")
	w.file("f", "new\n")
	changed(path)

	other := w.file("g", "old\n")
	if err := e.Update(editor.Snapshot{Files: []editor.File{{Path: other, Active: true}}}); err != nil {
		t.Fatal(err)
	}
	systest.Until(t, func() bool { return w.Watches(other) }) // it has been looked at once
	w.file("g", "new\n")
	changed(other)
	systest.Remove(t, other)
	changed(other)
}
