package companion

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
)

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// A file on a slow disk was checked again and again, and never shown.
func TestSlowDisk(t *testing.T) {
	var asked atomic.Int32
	dir := t.TempDir()
	path := filepath.Join(dir, "slow")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	updates := make(chan bool, 10)
	s := newStore(func(string) bool { asked.Add(1); time.Sleep(probeTimeout + 100*time.Millisecond); return false }, 0, func() { updates <- true })
	defer s.close()
	s.update(t, editor.Snapshot{Files: []editor.File{{Path: path, Active: true}}})
	receive(t, updates)
	if open := s.context().Files; len(open) != 1 || asked.Load() != 1 {
		t.Errorf("asked %d times, the context has %+v", asked.Load(), open)
	}
}

// One open file lies on a mount that does not answer.
func TestHungMount(t *testing.T) {
	release := make(chan struct{})
	hangs := func(path string) { // as a system call does
		if strings.HasSuffix(path, "hung") {
			<-release
		}
	}
	changed := make(chan string, 10)
	dir := t.TempDir()
	good, hung := filepath.Join(dir, "good"), filepath.Join(dir, "hung")
	for _, p := range []string{good, hung} {
		if err := os.WriteFile(p, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := newWatcher(func() []string { return []string{hung, good} }, func(p string) fileState { hangs(p); return stateOf(p) }, func(p string, _ fileState) { changed <- p })
	w.look(true)
	w.soon(hung, stateOf(hung))
	w.soon(good, stateOf(good))
	if err := os.WriteFile(good, []byte("new, and longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, changed); got != good {
		t.Errorf("changed: %s", got)
	}

	updates := make(chan bool, 10)
	s := newStore(func(p string) bool { hangs(p); return false }, 0, func() { updates <- true })
	s.update(t, editor.Snapshot{Files: []editor.File{{Path: hung, Active: true}, {Path: good}}})
	receive(t, updates)
	if open := s.context().Files; len(open) != 1 || open[0].Path != good {
		t.Errorf("the context has %+v", open)
	}
	close(release) // the server is back
	receive(t, updates)
	if open := s.context().Files; len(open) != 2 {
		t.Errorf("then the context has %+v", open)
	}
	s.close()
	w.close()
}

// A file has changed, and before the next look an agent announces a write. The editors
// kept the old text.
func TestWatcherReportsWhatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var size atomic.Int64
		state := func(string) fileState { return fileState{exists: true, size: size.Load()} }
		changed := make(chan fileState, 10)
		w := newWatcher(func() []string { return []string{"a"} }, state, func(_ string, now fileState) { changed <- now })
		defer w.close()
		w.look(true)
		time.Sleep(lookInterval + time.Millisecond)
		for range 2 {
			size.Add(1)
			w.soon("a", state(""))
			time.Sleep(4 * lookSoonInterval)
			if len(changed) != 1 || <-changed != state("") {
				t.Fatal("it does not report the change")
			}
		}
	})
}
