//go:build unix

package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A process that was killed between rename and chmod left a script 0600.
func TestReplaceFileNeverNarrowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.sh")
	write(t, path, "old", 0o755)
	done, wrong := make(chan bool), make(chan fs.FileMode, 1)
	go func() {
		defer close(wrong)
		for {
			select {
			case <-done:
				return
			default:
			}
			if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o755 {
				wrong <- info.Mode()
				return
			}
		}
	}()
	for range 300 {
		if err := ReplaceFile(path, "new"); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	if mode, ok := <-wrong; ok {
		t.Errorf("the file had mode %v for a moment", mode)
	}
}

func TestReplaceFileKeepsModeAndOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old", 0o640)
	owner := os.Getuid()
	if owner == 0 { // only root can give files away
		owner = 1234
		if err := os.Chown(path, owner, 4321); err != nil {
			t.Fatal(err)
		}
	}
	replace(t, path, "new")
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != owner || info.Mode() != 0o640 {
		t.Errorf("owner %d, mode %v", uid, info.Mode())
	}
}
