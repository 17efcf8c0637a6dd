package companion

import (
	"strings"

	"pollux/internal/editor"
)

// SelectionRange returns where the selection is. Without a selection it is empty, at the
// cursor; without a cursor it is at the start of the file.
//
// The editor may not have said at which end of the selection the cursor is: see
// [File.Range]. SelectionRange then assumes that it is at the end, if that many
// lines fit before it.
func (f File) SelectionRange() editor.Range {
	if f.Cursor == nil {
		first := editor.Cursor{Line: 1, Character: 1}
		return editor.Range{Start: first, End: first}
	}
	at := *f.Cursor
	switch lines := strings.Count(strings.TrimSuffix(f.Selection, "\n"), "\n"); {
	case f.Selection == "":
		return editor.Range{Start: at, End: at}
	case f.Range != nil:
		return *f.Range
	case at.Line > lines:
		return editor.Range{Start: editor.Cursor{Line: at.Line - lines, Character: 1}, End: at}
	default:
		return editor.Range{Start: at, End: editor.Cursor{Line: at.Line + lines, Character: at.Character + 1}}
	}
}
