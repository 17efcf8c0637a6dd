package companion

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// A settling is a companion with a view, and an agent that writes nothing.
type settling struct {
	*bare
	view *View
	s    *fakeSession
}

func newSettling(t *testing.T) *settling {
	b, v, s := newReview(t)
	return &settling{b, v, s}
}

// accept proposes a text for a file and accepts another one. It returns the file's path.
func (c *settling) accept(t *testing.T, name, proposed, accepted string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	c.view.Accepts(c.propose(t, c.s, c.view, Proposal{Path: path, Text: proposed}), accepted)
	<-c.s.outcomes
	return path
}

// wantClosed reads why the view closes the next diff, and the message to the user.
func (c *settling) wantClosed(t *testing.T, reason, says string) {
	t.Helper()
	if d := <-c.view.Closed; d.Reason != reason {
		t.Errorf("closed: %+v; want %s", d, reason)
	}
	if says != "" {
		c.view.Reads(says)
	}
}

// Each accepted change that its agent never wrote kept its texts, a goroutine and a
// ticker for ten minutes.
func TestUnwrittenChangesCostLittle(t *testing.T) {
	for _, tt := range []struct{ changes, size int }{{200, 10}, {20, 200_000}} {
		t.Run(fmt.Sprintf("%d of %d bytes", tt.changes, tt.size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSettling(t)
				accept := func(i int) {
					old := fmt.Sprint(i, strings.Repeat("o", tt.size))
					systest.WriteFile(t, filepath.Join(c.dir, fmt.Sprint(i)), old)
					c.accept(t, fmt.Sprint(i), "new"+old, "mine"+old)
					if i%40 == 0 || i == tt.changes {
						c.settle()
					}
				}
				accept(0)
				heap, goroutines := liveHeap(), runtime.NumGoroutine()
				for i := range tt.changes {
					accept(i + 1)
				}
				if heap, goroutines := liveHeap()-heap, runtime.NumGoroutine()-goroutines; heap > 1<<20 || goroutines > 10 {
					t.Errorf("they cost %.1f MB and %d goroutines", float64(heap)/1e6, goroutines)
				}
			})
		})
	}
}

// settle waits until no accepted change can be written in time and no look at a file is left, and
// empties the view's queues.
func (c *settling) settle() {
	time.Sleep(2 * writtenTimeout)
	synctest.Wait()
	for len(c.view.Closed)+len(c.view.Messages) > 0 {
		<-c.view.Closed
		<-c.view.Messages
	}
}

// liveHeap returns its size in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A late write is noticed in the last files only. The text to compare comes from the
// journal.
func TestLateWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSettling(t)
		var looked atomic.Int32
		c.watch.stat = func(path string) fileState { looked.Add(1); return stateOf(path) }
		var paths []string
		for i := range maxUnwritten + 1 {
			paths = append(paths, c.accept(t, fmt.Sprint(i), "new", "mine"))
		}
		c.settle()
		newest := paths[maxUnwritten]
		systest.WriteFile(t, paths[0], "mine")
		systest.WriteFile(t, newest, "another")
		time.Sleep(2 * lookInterval)
		systest.WriteFile(t, newest, "mine")
		c.view.Reads(newest + " was written now")
		time.Sleep(lateWrittenTimeout)
		systest.WriteFile(t, paths[1], "mine")
		time.Sleep(2 * lookInterval)
		synctest.Wait()
		c.view.ReadsNoMore()
		entries, err := c.journal.List()
		if err != nil || len(entries) != maxUnwritten+1 {
			t.Fatalf("the journal has %d entries, %v", len(entries), err)
		}
		for i, e := range entries {
			if e.Unwritten == (i == 0) {
				t.Errorf("the entry of %s says that it is unwritten: %v", e.Path, e.Unwritten)
			}
		}
		looks := looked.Load()
		time.Sleep(10 * lookInterval)
		if looked.Load() > looks {
			t.Error("the companion still looks at files")
		}
	})
}

// A file is on a mount that does not answer any more.
func TestHungFileDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSettling(t)
		answers := make(chan bool)
		c.watch.stat = func(path string) fileState {
			if strings.HasSuffix(path, "hung") {
				<-answers
			}
			return stateOf(path)
		}
		hung := c.accept(t, "hung", "new", "mine")
		start := time.Now()
		systest.WriteFile(t, c.accept(t, "good", "new", "mine"), "mine")
		c.wantClosed(t, editor.ReasonAccepted, "")
		if took := time.Since(start); took > 2*lookSoonInterval {
			t.Errorf("the other file was noticed after %v", took)
		}
		c.wantClosed(t, editor.ReasonUnwritten, "did not write it")
		if took := time.Since(start); took > writtenTimeout+lookTimeout {
			t.Errorf("the change ended after %v", took)
		}
		systest.WriteFile(t, hung, "mine")
		close(answers)
		c.view.Reads(hung + " was written now")
	})
}

// The user reads why a text is not in the file.
func TestWhyUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSettling(t)
		systest.WriteFile(t, c.accept(t, "a", "new", "mine"), "another")
		c.wantClosed(t, editor.ReasonUnwritten, "something else was written")

		c.accept(t, "a", "new", "mine")
		c.proposes(t, c.s, Proposal{Path: filepath.Join(c.dir, "b"), Text: "new"})
		c.wantClosed(t, editor.ReasonUnwritten, "it may wait for your answer to its other changes")

		c.s.undelivered = true
		c.accept(t, "c", "new", "mine")
		c.wantClosed(t, editor.ReasonUnwritten, "its agent disconnected before")
	})
}

// An agent that does not read its answers cannot keep any number of texts in memory.
func TestUndeliveredTextsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newSettling(t)
		c.s.reads = make(chan bool)
		defer close(c.s.reads)
		c.maxAccepted = 1 << 20
		large := strings.Repeat("x", c.maxAccepted/2)
		c.accept(t, "a", large, "mine")
		time.Sleep(lateWrittenTimeout + time.Millisecond)
		if len(c.view.Closed) > 0 {
			t.Fatalf("closed: %+v", <-c.view.Closed)
		}
		path := c.accept(t, "b", large, "mine")
		for i := range 12 { // others give it no more time
			c.accept(t, fmt.Sprint(i), "new", "mine")
			time.Sleep(lookSoonInterval / 3)
		}
		if len(c.view.Closed) == 0 {
			t.Fatal("the oldest change still waits")
		}
		c.wantClosed(t, editor.ReasonUnwritten, filepath.Join(c.dir, "a")+" does not hold the text")
		systest.WriteFile(t, path, "mine")
		c.wantClosed(t, editor.ReasonAccepted, "")
	})
}

// An agent empties a file before it writes it. An editor that read the empty file lost the place
// of the cursor.
func TestEmptiedFileMayBeInTheMiddleOfAWrite(t *testing.T) {
	full, empty, written := fileState{exists: true, size: 4}, fileState{exists: true, at: 1}, fileState{exists: true, size: 5, at: 2}
	f := &watched{known: full, next: unseen}
	for range emptiedLooks - 1 {
		if f.sees(empty) {
			t.Fatal("an empty file counts too early")
		}
	}
	if f.sees(written) || !f.sees(written) {
		t.Error("the written file does not count when it looks the same twice")
	}
	for n := 1; !f.sees(empty); n++ {
		if n == emptiedLooks {
			t.Fatal("a file that stays empty never counts")
		}
	}
	if f.sees(written) || !f.sees(written) {
		t.Error("a file that was empty does not count when it looks the same twice")
	}
}

// The warning blamed a Ctrl-C in the terminal.
func TestUnwrittenReadOnlyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSettling(t)
		path := filepath.Join(c.dir, "f")
		systest.WriteFile(t, path, "old")
		if err := os.Chmod(path, 0o400); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(path, 0o600) }) // so that Windows can remove it
		c.accept(t, "f", "new", "new")
		c.wantClosed(t, editor.ReasonUnwritten, "f was accepted, but the file is read-only ("+disk.MakeWritable+" makes it writable)")
	})
}
