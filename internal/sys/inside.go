package sys

import (
	"path/filepath"
	"runtime"
	"strings"
)

// Inside reports whether path is root or below it. Both are absolute and
// clean. Upper and lower case are the same on macOS and Windows, as for
// Gemini CLI, although a volume can be set up otherwise there.
func Inside(root, path string) bool {
	return inside(root, path, runtime.GOOS == "darwin" || runtime.GOOS == "windows")
}

func inside(root, path string, foldCase bool) bool {
	if foldCase {
		root, path = strings.ToLower(root), strings.ToLower(path)
	}
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
