package sys

import (
	"path/filepath"
	"testing"
)

// On macOS a workspace opened as /Work was not that of the files in /work.
func TestInside(t *testing.T) {
	for _, test := range []struct {
		root, path string
		fold, want bool
	}{
		{"/work", "/work", false, true},
		{"/work", "/work/a/b", false, true},
		{"/", "/work", false, true},
		{"/work", "/", false, false},
		{"/work", "/workshop", false, false},
		{"/work", "/work/..a", false, true},
		{"/work", "/work/../etc", false, false},
		{"/work", "/other/work", false, false},
		{"/work", "work", false, false},
		{"/work", "/Work/a", true, true},
		{"/Work/A", "/work/a", true, true},
		{"/ÄRGER", "/ärger/x", true, true},
		{"/work", "/Workshop", true, false},
	} {
		root, path := filepath.FromSlash(test.root), filepath.FromSlash(test.path)
		if got := inside(root, path, test.fold); got != test.want {
			t.Errorf("inside(%s, %s, %v) = %v", root, path, test.fold, got)
		}
	}
	if filepath.Separator == '/' && inside("/work", "/Work/a", false) {
		t.Error("case does not count where it should")
	}
}
