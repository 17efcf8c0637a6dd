package disk

import (
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if Abandoned(path) {
		t.Error("a file that is not there was abandoned")
	}
	systest.WriteFile(t, path, "")
	if Abandoned(path) {
		t.Error("a file that is about to be locked was abandoned")
	}
	f, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if Abandoned(path) {
		t.Error("a locked file was abandoned")
	}
	f.Close()
	if !Abandoned(path) {
		t.Error("an unlocked file was not abandoned")
	}
}
