package systest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Dir returns a new directory, by its real path. It ends with the test.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ShortDir returns a new directory for sockets: their paths must be short. It cannot use
// disk.ShortTempDir, because the tests of disk use this package.
func ShortDir(t testing.TB) string {
	t.Helper()
	parent := os.TempDir()
	if len(parent) > 50 && runtime.GOOS != "windows" {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "px")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// MakeDir makes a directory that only the user can enter, and those above it.
func MakeDir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// WriteFile writes a file that only the user can read, and makes its directory.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	MakeDir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ReadFile returns the text of a file.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// WantFile compares the text of a file.
func WantFile(t testing.TB, path, want string) {
	t.Helper()
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("%s holds %q, %v; want %q", path, data, err, want)
	}
}

// Remove removes a file or an empty directory.
func Remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// SetTime sets the time at which a file was last changed, and last read.
func SetTime(t testing.TB, path string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// Self returns the path of the running test program.
func Self(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}
