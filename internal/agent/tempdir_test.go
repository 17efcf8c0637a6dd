package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// A new process removes what a killed one left behind, but nothing that is in
// use.
func TestStaleDirectoriesAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, tmp)
	}
	dead := filepath.Join(os.TempDir(), "pollux-test-4194305-x")
	alive := filepath.Join(os.TempDir(), fmt.Sprintf("pollux-test-%d-x", os.Getpid()))
	young := dead + "-young" // its process may be in another container
	long := time.Now().Add(-2 * staleTTL)
	for _, d := range []string{dead, alive, young} {
		systest.MakeDir(t, filepath.Join(d, "run-1"))
		if err := os.Chtimes(d, long, long); d != young && err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	// A locked directory is in use, regardless of its PID and age. A killed process
	// holds no lock, so its directory is removed immediately.
	locked := func(name string) (string, *os.File) {
		dir := filepath.Join(os.TempDir(), "pollux-test-"+name)
		systest.MakeDir(t, filepath.Join(dir, "worker-1", "home"))
		lock, err := disk.Lock(filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		return dir, lock
	}
	held, lock := locked("4194305-held")
	defer lock.Close()
	systest.SetTime(t, held, long)
	killed, lock := locked(fmt.Sprintf("%d-killed", os.Getpid()))
	lock.Close()
	temp, err := NewTempDir("test")
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Close()
	for _, d := range []string{dead, killed} {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("a dead one's directory is still there: %s", d)
		}
	}
	for _, d := range []string{alive, young, held, temp.Path} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("%s is gone", d)
		}
	}
}
