//go:build unix

package systest

import (
	"os"
	"testing"
)

// Unreadable makes a file one that this process cannot read until the test ends. It
// skips the test for root, who can read all files.
func Unreadable(t testing.TB, path string) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("root can read all files")
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
}
