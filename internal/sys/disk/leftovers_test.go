package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"time"

	"pollux/internal/sys/systest"
)

// place creates an old entry of dir: a directory if the name ends in a slash.
func place(t *testing.T, dir, name string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, name)
	var err error
	if strings.HasSuffix(name, "/") {
		err = os.Mkdir(path, 0o700)
	} else {
		err = os.WriteFile(path, []byte("x"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	systest.SetTime(t, path, at)
	return path
}

func TestLeftovers(t *testing.T) {
	for _, test := range []struct {
		what  string
		rules Leftovers
		place []string
		found []string
	}{
		{"a type", Leftovers{Pattern: "run-*"}, []string{"run-1", "run-2/", "other"}, []string{"run-1"}},
		{"directories", Leftovers{Pattern: "run-*", Type: fs.ModeDir}, []string{"run-1", "run-2/"}, []string{"run-2"}},
		{"what is in use", Leftovers{Pattern: "run-*", InUse: func(name string) bool { return name == "run-1" }},
			[]string{"run-1", "run-2"}, []string{"run-2"}},
		{"the caller's word", Leftovers{Pattern: "run-*", Abandoned: func(path string) bool { return filepath.Base(path) == "run-2" }},
			[]string{"run-1", "run-2"}, []string{"run-2"}},
	} {
		dir := t.TempDir()
		for _, name := range test.place {
			place(t, dir, name, time.Hour)
		}
		found := test.rules.Find(dir)
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		if !slices.Equal(found, test.found) {
			t.Errorf("%s: found %q, want %q", test.what, found, test.found)
		}
	}
	if found := TempFiles.Find(filepath.Join(t.TempDir(), "none")); found != nil {
		t.Errorf("a directory that does not exist holds %q", found)
	}
}

// TempFiles removes only what Pollux has made and left.
func TestTempFiles(t *testing.T) {
	dir := t.TempDir()
	large := place(t, dir, TempName(), 2*TempTTL)
	if err := os.Truncate(large, 1<<30); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * TempTTL)
	systest.SetTime(t, large, past)
	old := []string{large, place(t, dir, TempName(), 2*TempTTL)}
	kept := []string{place(t, dir, TempName(), 0)}
	for _, name := range []string{
		".pollux-.tmp", ".pollux-notes.tmp", ".pollux-1.tmp", strings.ToLower(TempName()), TempName() + ".kept",
		"a" + TempName(), TempName() + "/",
	} {
		kept = append(kept, place(t, dir, name, 2*TempTTL))
	}
	locked := place(t, dir, TempName(), 2*TempTTL)
	f, err := os.OpenFile(locked, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := lock(f, false); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, locked)
	link := filepath.Join(dir, TempName())
	if systest.TryLink(locked, link) == nil {
		kept = append(kept, link)
	}
	TempFiles.Remove(dir)
	for _, path := range old {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("an old temporary file of %d is left: %s", len(old), path)
		}
	}
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s is gone", filepath.Base(path))
		}
	}
}

// A lock decides alone: its process may run in another container.
func TestLeftoversByLock(t *testing.T) {
	dir := t.TempDir()
	rules := Leftovers{Pattern: "run-*", Type: fs.ModeDir, Lock: "lock", MinAge: time.Hour}
	held := place(t, dir, "run-held/", 2*time.Hour)
	lock, err := Lock(filepath.Join(held, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	left := place(t, dir, "run-left/", 0)
	released, err := Lock(filepath.Join(left, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	released.Close()
	none := place(t, dir, "run-none/", 2*time.Hour)
	young := place(t, dir, "run-young/", 0)
	rules.Remove(dir)
	for path, gone := range map[string]bool{held: false, left: true, none: true, young: false} {
		if _, err := os.Stat(path); (err != nil) != gone {
			t.Errorf("%s is gone: %v", filepath.Base(path), err != nil)
		}
	}
}

// Remove follows no symbolic link.
func TestLeftoversFollowNoLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	kept := place(t, elsewhere, "kept", time.Hour)
	systest.Link(t, elsewhere, filepath.Join(dir, "run-1"))
	systest.Link(t, kept, filepath.Join(dir, "run-2"))
	for _, typ := range []fs.FileMode{0, fs.ModeDir} {
		Leftovers{Pattern: "run-*", Type: typ}.Remove(dir)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 2 {
		t.Errorf("there are %q", names)
	}
}
