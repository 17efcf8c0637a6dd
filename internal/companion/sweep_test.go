package companion

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// A process that was killed while it saved a file left a temporary one in the project
// until it next saved a file in that directory.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBare(t)
		elsewhere := t.TempDir()
		leftover := func(dir string, age time.Duration) string {
			path := filepath.Join(dir, disk.TempName())
			systest.WriteFile(t, path, "half a te")
			at := time.Now().Add(-age)
			systest.SetTime(t, path, at)
			return path
		}
		journalled := func(path string) {
			if _, err := c.journal.Add(journal.Entry{Path: path, Real: path, State: journal.Saved}, "text"); err != nil {
				t.Fatal(err)
			}
		}
		sub := filepath.Join(c.dir, "a", "b")
		old, young := leftover(sub, 2*disk.TempTTL), leftover(sub, 0)
		link := filepath.Join(c.dir, "link")
		systest.Link(t, elsewhere, link)
		kept := []string{
			leftover(filepath.Join(c.dir, "a"), 2*disk.TempTTL), leftover(elsewhere, 2*disk.TempTTL),
			filepath.Join(sub, ".pollux-notes.tmp"),
		}
		systest.WriteFile(t, kept[2], "the user's")
		for _, path := range []string{
			filepath.Join(sub, "f"), filepath.Join(elsewhere, "f"), filepath.Join(link, "f"), filepath.Join(c.dir, "none", "f"), "f",
		} {
			journalled(path)
		}
		gone := func(path string, want bool) {
			t.Helper()
			if _, err := os.Lstat(path); (err != nil) != want {
				t.Errorf("%s is gone: %v; want %v", path, err != nil, want)
			}
		}
		time.Sleep(disk.TempTTL + time.Second)
		synctest.Wait()
		gone(old, true)
		gone(young, true)
		for _, path := range kept {
			gone(path, false)
		}
	})
}
