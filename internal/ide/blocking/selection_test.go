package blocking

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/sys/systest"
)

func cursor(line, character int) *editor.Cursor {
	return &editor.Cursor{Line: line, Character: character}
}

func TestNewSelection(t *testing.T) {
	root := systest.Abs("/project")
	file := filepath.Join(root, "a b")
	lines := companion.File{
		Cursor: cursor(2, 1), Selection: "b\nc", Range: &editor.Range{Start: *cursor(2, 1), End: *cursor(3, 2)},
	}
	for name, tt := range map[string]struct {
		file  companion.File
		shift int
		want  string // the path, lines and characters, and the text
	}{
		"no cursor":           {companion.File{}, 0, "0:0-0:0"},
		"a cursor":            {companion.File{Cursor: cursor(3, 5)}, 0, "2:4-2:4"},
		"opencode":            {companion.File{Cursor: cursor(3, 5)}, 1, "3:4-3:4"},
		"a range":             {lines, 0, "1:0-2:1 b\nc"},
		"a range in opencode": {lines, 1, "2:0-3:1 b\nc"},
		// Editors that send no range: the cursor is at the end, if it can be.
		"a selection above the cursor": {companion.File{Cursor: cursor(3, 2), Selection: "b\nc"}, 0, "1:0-2:1 b\nc"},
		"a selection below the cursor": {companion.File{Cursor: cursor(1, 1), Selection: "b\nc\n"}, 0, "0:0-1:1 b\nc\n"},
		"a line":                       {companion.File{Cursor: cursor(1, 4), Selection: "b\n"}, 0, "0:0-0:3 b\n"},
	} {
		f := tt.file
		f.Path, f.Active = file, true
		m := NewSelection(companion.Context{Files: []companion.File{f}}, []string{"/other", root}, tt.shift)
		s := m.Span
		got := fmt.Sprintf("%d:%d-%d:%d", s.Start.Line, s.Start.Character, s.End.Line, s.End.Character)
		if m.Text != "" {
			got += " " + m.Text
		}
		if got != tt.want || s.IsEmpty != (m.Text == "") || m.FilePath != file || m.FileURL != paths.ToURL(file) || !strings.HasSuffix(m.FileURL, "/project/a%20b") {
			t.Errorf("%s: %s, %+v; want %s", name, got, m, tt.want)
		}
	}
	empty := Selection{Span: Span{IsEmpty: true}}
	for name, c := range map[string]companion.Context{
		"nothing open":      {},
		"no active file":    {Files: []companion.File{{Path: "/project/a"}}},
		"outside the roots": {Files: []companion.File{{Path: "/projects/a", Active: true, Selection: "secret"}}},
		"above the roots":   {Files: []companion.File{{Path: "/project/../a", Active: true}}},
	} {
		if m := NewSelection(c, []string{root}, 0); m != empty {
			t.Errorf("%s: %+v", name, m)
		}
	}
	// The agent clears its display for a message without a path, a range and a text.
	data, err := json.Marshal(empty)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"text":"","filePath":"","fileUrl":"","selection":` +
		`{"start":{"line":0,"character":0},"end":{"line":0,"character":0},"isEmpty":true}}`; string(data) != want {
		t.Errorf("%s", data)
	}
	const wide = "\U0001F600" // two code units
	long := companion.File{
		Path: file, Active: true, Cursor: cursor(1, 1), Selection: strings.Repeat(wide, MaxSelection),
	}
	m := NewSelection(companion.Context{Files: []companion.File{long}}, []string{root}, 0)
	if m.Text != strings.Repeat(wide, MaxSelection/2) {
		t.Errorf("a long text is cut to %d bytes", len(m.Text))
	}
}

// The place of a file counts, not the path that leads there.
func TestSelectionAndLinks(t *testing.T) {
	dir := systest.Dir(t)
	root := filepath.Join(dir, "project")
	inside, outside := filepath.Join(root, "a"), filepath.Join(dir, "outside")
	for _, path := range []string{inside, outside} {
		systest.WriteFile(t, path, "")
	}
	// link returns a link in the project.
	link := func(t *testing.T, target string) string {
		path := filepath.Join(root, filepath.Base(t.Name()))
		systest.Link(t, target, path)
		return path
	}
	for name, tt := range map[string]struct {
		open func(t *testing.T) string
		want string
	}{
		"inside":             {func(*testing.T) string { return inside }, inside},
		"by another path":    {func(t *testing.T) string { return filepath.Join(systest.Alias(t, root), "a") }, inside},
		"outside":            {func(*testing.T) string { return outside }, ""},
		"a link to a file":   {func(t *testing.T) string { return link(t, inside) }, filepath.Join(root, "a_link_to_a_file")},
		"a link that leaves": {func(t *testing.T) string { return link(t, outside) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := companion.File{Path: tt.open(t), Active: true}
			if m := NewSelection(companion.Context{Files: []companion.File{f}}, []string{root}, 0); m.FilePath != tt.want {
				t.Errorf("%s: %q, want %q", f.Path, m.FilePath, tt.want)
			}
		})
	}
}
