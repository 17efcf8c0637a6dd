package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A pool that could never lock its directory tried forever, with no console to end it.
func TestLockDirGivesUp(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDir(t.Context(), dir); err == nil || !strings.Contains(err.Error(), lock) || !strings.Contains(err.Error(), ": remove it") {
		t.Errorf("the error is %v", err)
	}
}
