package disk

import (
	"path/filepath"
	"testing"
	"time"

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

// A directory can be removed while another process looks at the lock in it. On Windows, that look
// kept it from being removed.
func TestRemoveDirWhileOthersLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pollux-x")
	lock := filepath.Join(path, "lock")
	done := make(chan struct{})
	defer close(done)
	go func() {
		for look := time.Tick(5 * time.Millisecond); ; Abandoned(lock) {
			select {
			case <-done:
				return
			case <-look:
			}
		}
	}()
	for range 100 {
		systest.MakeDir(t, path)
		f, err := Lock(lock)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := RemoveDir(path, "lock"); err != nil {
			t.Fatal(err)
		}
	}
}
