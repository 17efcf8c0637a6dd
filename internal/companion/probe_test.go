package companion

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A file on a slow disk was checked again and again, and never shown.
func TestSlowDisk(t *testing.T) {
	var asked atomic.Int32
	dir := t.TempDir()
	path := filepath.Join(dir, "slow")
	systest.WriteFile(t, path, "")
	updates := make(chan bool, 10)
	s := newStore(func(string) bool { asked.Add(1); time.Sleep(probeTimeout + 100*time.Millisecond); return false }, 0, func() { updates <- true })
	defer s.close()
	s.update(t, editor.Snapshot{Files: []editor.File{{Path: path, Active: true}}})
	systest.Receive(t, updates)
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
	b := newBare(t)
	b.watch.stat = func(path string) fileState { hangs(path); return stateOf(path) }
	changed := make(chan string, 10)
	b.attach(t, editor.InitializeParams{}, editor.Handler{FileChanged: func(f editor.FileChanged) { changed <- f.Path }})
	good, hung := b.file(t, "good"), b.file(t, "hung")
	b.SetContext(editor.Snapshot{Files: []editor.File{{Path: hung}, {Path: good}}})
	defer b.Disconnect(b.connect(t, newFakeSession()))
	systest.Until(t, func() bool { return b.Watches(good) })
	systest.WriteFile(t, good, "new, and longer")
	if got := systest.Receive(t, changed); got != good {
		t.Errorf("changed: %s", got)
	}

	updates := make(chan bool, 10)
	s := newStore(func(p string) bool { hangs(p); return false }, 0, func() { updates <- true })
	s.update(t, editor.Snapshot{Files: []editor.File{{Path: hung, Active: true}, {Path: good}}})
	systest.Receive(t, updates)
	if open := s.context().Files; len(open) != 1 || open[0].Path != good {
		t.Errorf("the context has %+v", open)
	}
	close(release) // the server is back
	systest.Receive(t, updates)
	if open := s.context().Files; len(open) != 2 {
		t.Errorf("then the context has %+v", open)
	}
	s.close()
}

// A file has changed, and before the next look an agent announces a write. The editors
// kept the old text.
func TestWatcherReportsWhatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t)
		path := b.file(t, "a")
		changed := make(chan string, 10)
		b.attach(t, editor.InitializeParams{}, editor.Handler{FileChanged: func(f editor.FileChanged) { changed <- f.Path }})
		b.checker(t, true, inFile(path))
		s := b.connect(t, newFakeSession())
		b.SetContext(editor.Snapshot{Files: []editor.File{{Path: path}}})
		time.Sleep(2 * lookInterval)
		for _, text := range []string{"1", "22"} {
			systest.WriteFile(t, path, text)
			if _, err := b.BeforeWrite(t.Context(), s, path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * lookSoonInterval)
			synctest.Wait()
			if len(changed) != 1 || <-changed != path {
				t.Fatal("it does not report the change")
			}
		}
	})
}
