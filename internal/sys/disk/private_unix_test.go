//go:build unix

package disk

import (
	"errors"
	"os"
	"testing"
)

// foreignDir returns a directory of another user.
func foreignDir(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		return "/"
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 65534, 65534); errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}
