// Package hostile creates, for tests, the kinds of files that a repository or
// another user of the machine may put where Pollux reads a file.
package hostile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Kinds lists the kinds of files that [Plant] creates.
var Kinds = []string{"FIFO", "brackets", "device", "sparse"}

// Plant creates a file of that kind at path, and its directory. It skips the test
// on Windows for a kind that no directory can hold there.
func Plant(t testing.TB, kind, path string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "brackets": // text that nests too deeply
		err = os.WriteFile(path, bytes.Repeat([]byte("["), 2<<20), 0o600)
	case "sparse":
		size := int64(20 << 30)
		if runtime.GOOS == "windows" { // where it takes that much of the disk
			size = 1 << 30
		}
		err = errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
	case "FIFO":
		if runtime.GOOS == "windows" {
			t.Skip("Windows has no FIFOs in directories")
		}
		var out []byte
		if out, err = exec.Command("mkfifo", path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	case "device":
		if runtime.GOOS == "windows" {
			t.Skip("Windows has no device files")
		}
		err = os.Symlink("/dev/zero", path)
	default:
		t.Fatalf("unknown kind %q", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
}
