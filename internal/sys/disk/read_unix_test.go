//go:build unix

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A repository can hold a FIFO, or a link to a device.
func TestReadFileReadsNoDevice(t *testing.T) {
	dir := t.TempDir()
	fifo, zero := filepath.Join(dir, "fifo"), filepath.Join(dir, "zero")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("/dev/zero", zero)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, zero} {
		if _, err := ReadFile(path, 5); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Files in /proc have size 0.
	if data, err := ReadFile("/proc/self/stat", 1<<16); err == nil && len(data) == 0 {
		t.Error("ReadFile trusts a size of 0")
	}
}
