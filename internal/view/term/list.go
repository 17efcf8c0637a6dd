package term

import (
	"path/filepath"

	"github.com/charmbracelet/x/ansi"

	"pollux/internal/termtext"
)

// A listed is a row of a list of files: a folder, or a file.
type listed struct {
	path   string
	file   int  // the file's index; -1 for a folder
	inside bool // a row above has the file's folder
}

// manyFiles is from how many successive files on a folder has its own row.
const manyFiles = 3

// byFolder returns the rows of a list of n files.
func (m *model) byFolder(n int, path func(int) string) (rows []listed) {
	for i := 0; i < n; {
		folder, end := filepath.Dir(path(i)), i
		for end < n && filepath.Dir(path(end)) == folder {
			end++
		}
		short := m.relative(folder)
		inside := end-i >= manyFiles && short != "."
		if inside {
			rows = append(rows, listed{path: short + string(filepath.Separator), file: -1})
		}
		for ; i < end; i++ {
			rows = append(rows, listed{m.relative(path(i)), i, inside})
		}
	}
	return rows
}

// line returns a row after a mark, and before a rest. It cuts the path from the left if the
// line would be wider than width columns.
func (l listed) line(mark, rest string, width int) string {
	path := l.path
	if l.inside {
		mark, path = "  "+mark, filepath.Base(path)
	}
	return mark + cutLeft(path, width-ansi.StringWidth(mark+rest)) + rest
}

// cutLeft returns a path as the terminal shows it. It cuts the path from the left if it is wider
// than width columns.
func cutLeft(path string, width int) string {
	path = termtext.Visible(path)
	if over := ansi.StringWidth(path) - max(2, width); over > 0 {
		return ansi.TruncateLeft(path, over+1, "…")
	}
	return path
}
