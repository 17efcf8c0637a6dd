// Package hostile creates, for tests, the files that a repository or another user
// of the machine may put where Pollux reads one.
package hostile

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Kinds lists the kinds of files that [Plant] creates.
var Kinds = []string{"FIFO", "brackets", "device", "sparse"}

var scripts = map[string]string{
	"FIFO":     `mkfifo "$1"`,
	"device":   `ln -s /dev/zero "$1"`,
	"sparse":   `truncate -s 20G "$1"`,
	"brackets": `head -c 2097152 /dev/zero | tr '\0' '[' >"$1"`,
}

// Plant creates a file of that kind at path, and its directory. It skips the test
// on Windows, which has no shell for it.
func Plant(t testing.TB, kind, path string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", scripts[kind], "sh", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
