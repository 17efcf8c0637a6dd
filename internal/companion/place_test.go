package companion

import (
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/editor"
)

func TestPathIn(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside, link := filepath.Join(base, "root"), filepath.Join(base, "outside"), filepath.Join(base, "link")
	for _, dir := range []string{root, outside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{link: root, filepath.Join(root, "leads-out"): outside} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(root, "new"):            filepath.Join(root, "new"),
		filepath.Join(link, "new"):            filepath.Join(root, "new"),
		filepath.Join(outside, "new"):         "",
		filepath.Join(root, "leads-out", "f"): "",
		base:                                  "",
	} {
		if got, ok := PathIn(path, []string{root}); got != want || ok != (want != "") {
			t.Errorf("PathIn(%q) = %q, %v; want %q", path, got, ok, want)
		}
	}
}

func TestSelectionRange(t *testing.T) {
	at := func(line, character int) editor.Cursor { return editor.Cursor{Line: line, Character: character} }
	cursor := at(3, 5)
	for name, tt := range map[string]struct {
		file File
		want editor.Range
	}{
		"no cursor":    {File{Selection: "x"}, editor.Range{Start: at(1, 1), End: at(1, 1)}},
		"no selection": {File{Cursor: &cursor}, editor.Range{Start: cursor, End: cursor}},
		"a range": {
			File{Cursor: &cursor, Selection: "x\ny", Range: &editor.Range{Start: at(3, 5), End: at(4, 2)}},
			editor.Range{Start: at(3, 5), End: at(4, 2)},
		},
		"the cursor at the end":   {File{Cursor: &cursor, Selection: "x\ny\n"}, editor.Range{Start: at(2, 1), End: cursor}},
		"the cursor at the start": {File{Cursor: &cursor, Selection: "1\n2\n3\n4"}, editor.Range{Start: cursor, End: at(6, 6)}},
	} {
		if got := tt.file.SelectionRange(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
