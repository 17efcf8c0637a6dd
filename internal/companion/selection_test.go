package companion

import (
	"testing"

	"pollux/internal/editor"
)

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
