//go:build unix

package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A repository can hold a FIFO, a link to a device, or a sparse file of many
// gigabytes where a settings file is expected.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(path("text"), []byte("12345"), 0o600),
		os.WriteFile(path("sparse"), nil, 0o600),
		os.Truncate(path("sparse"), 20<<30),
		syscall.Mkfifo(path("fifo"), 0o600),
		os.Symlink("/dev/zero", path("zero")),
		os.Symlink("text", path("link")),
	); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		limit int64
		want  error
	}{
		{"text", 5, nil},
		{"link", 5, nil},
		{"text", 4, ErrTooLarge},
		{"sparse", 1 << 20, ErrTooLarge},
		{"fifo", 5, ErrNotRegular},
		{"zero", 5, ErrNotRegular},
		{".", 5, ErrNotRegular},
		{"missing", 5, fs.ErrNotExist},
	} {
		data, err := ReadFile(path(test.name), test.limit)
		if !errors.Is(err, test.want) || err == nil && string(data) != "12345" {
			t.Errorf("ReadFile(%s, %d) = %q, %v; want %v", test.name, test.limit, data, err, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), path(test.name)) {
			t.Errorf("the error does not name the file: %v", err)
		}
	}
	// Files in /proc have size 0.
	if data, err := ReadFile("/proc/self/stat", 1<<16); err == nil && len(data) == 0 {
		t.Error("ReadFile trusts a size of 0")
	}
}
