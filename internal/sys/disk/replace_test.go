package disk

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/sys/systest"
)

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	systest.WriteFile(t, path, text)
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := ReplaceFile(path, text); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Fatalf("%s holds %q, %v; want %q", path, got, err, text)
	}
}

func TestReplaceFileKeepsHardLinks(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, file, "old, and longer", 0o640)
	if err := os.Link(file, other); err != nil {
		t.Fatal(err)
	}
	replace(t, file, "new")
	systest.WantFile(t, other, "new")
}

func TestReplaceFileFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, file, "old", 0o640)
	systest.Link(t, "a", link)
	replace(t, link, "new")
	systest.WantFile(t, file, "new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
}

func TestReplaceFileCreatesDirectories(t *testing.T) {
	replace(t, filepath.Join(t.TempDir(), "x", "y", "z"), "new")
}

// A process that was killed while it saved a file left a temporary one beside it.
func TestReplaceFileRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	write(t, path, "old", 0o600)
	cmd := systest.Program(t, "replace")
	cmd.Env = append(cmd.Env, "SYS_TEST_FILE="+path)
	in, out := systest.Start(t, cmd)
	defer in.Close()
	kill := sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	defer kill()
	temp, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	temp = strings.TrimSpace(temp)
	age := func(path string) {
		t.Helper()
		past := time.Now().Add(-2 * TempTTL)
		systest.SetTime(t, path, past)
	}
	age(temp)
	replace(t, other, "new")
	if _, err := os.Stat(temp); err != nil {
		t.Error("a file that another process writes is gone")
	}
	kill()
	fresh := filepath.Join(dir, TempName())
	write(t, fresh, "", 0o600)
	replace(t, other, "newer")
	if _, err := os.Stat(temp); err == nil {
		t.Error("the leftover of a killed process is still there")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Error("a file that another process may be about to rename is gone")
	}
	systest.WantFile(t, path, "old")
}

// Between a proposal and its save, a directory or the file can become a link.
func TestReplaceInStaysInside(t *testing.T) {
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, d := range []string{inside, outside} {
		systest.MakeDir(t, d)
	}
	write(t, filepath.Join(outside, "secret"), "old", 0o600)
	names := []string{"../out/secret", filepath.Join(outside, "secret")}
	for name, link := range map[string][2]string{
		"dir/secret": {"dir", "../out"}, "dir2/new": {"dir2", "../out"},
		"file": {"file", "../out/secret"}, "dangling": {"dangling", "../out/new"}, "here": {"here", "real"},
	} {
		err := systest.TryLink(link[1], filepath.Join(inside, link[0]))
		if err == nil {
			names = append(names, name)
		} else if runtime.GOOS != "windows" {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(inside, "real"), "old", 0o600)
	root, err := os.OpenRoot(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range names {
		if err := ReplaceIn(root, name, "new"); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	systest.WantFile(t, filepath.Join(outside, "secret"), "old")
	if names, _ := filepath.Glob(filepath.Join(outside, "*")); len(names) != 1 {
		t.Errorf("outside there is now %s", strings.Join(names, ", "))
	}
	if err := ReplaceIn(root, "sub/real", "new"); err != nil {
		t.Error(err)
	}
}

// On a FAT volume and on many file servers, a new file does not belong to the user who
// makes it. Accepted text could not be saved there on Windows.
func TestReplaceInWhereFilesBelongToOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "old", 0o600)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	before, err := root.Lstat("f")
	if err != nil {
		t.Fatal(err)
	}
	foreign := func(path string) error { return &fs.PathError{Op: "protect", Path: path, Err: ErrForeign} }
	if err := replaceIn(root, "f", "new", foreign); err != nil {
		t.Error(err)
	}
	systest.WantFile(t, path, "new")
	if after, err := root.Lstat("f"); err != nil || !os.SameFile(before, after) {
		t.Errorf("another file is in its place: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
	broken := errors.New("broken")
	if err := replaceIn(root, "f", "newer", func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("another error: %v", err)
	}
}

// On Windows, a virus scanner or another program can keep a file open for a moment.
func TestRenameWaitsForOtherPrograms(t *testing.T) {
	busy, other, changed := errors.New("busy"), errors.New("other"), errors.New("changed")
	inUse := func(err error) bool { return err == busy }
	for name, test := range map[string]struct {
		results []error // one for each attempt; the last one repeats
		check   error
		want    error
		within  [2]time.Duration
	}{
		"it is not open":            {[]error{nil}, nil, nil, [2]time.Duration{0, 0}},
		"it is closed soon":         {[]error{busy, busy, nil}, nil, nil, [2]time.Duration{0, 10 * time.Millisecond}},
		"it is not closed":          {[]error{busy}, nil, busy, [2]time.Duration{renameTimeout, renameTimeout + maxRenameDelay}},
		"another error":             {[]error{other}, nil, other, [2]time.Duration{0, 0}},
		"another error after a try": {[]error{busy, other}, nil, other, [2]time.Duration{0, 10 * time.Millisecond}},
		"the file changes":          {[]error{busy, nil}, changed, changed, [2]time.Duration{0, 10 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, attempts := time.Now(), 0
				err := retryIf(t.Context(), inUse, renameTimeout, func() error {
					attempts++
					return test.results[min(attempts, len(test.results))-1]
				}, func() error { return test.check })
				if err != test.want {
					t.Errorf("the error is %v; want %v", err, test.want)
				}
				if took := time.Since(start); took < test.within[0] || took > test.within[1] {
					t.Errorf("it took %v; want %v", took, test.within)
				}
			})
		})
	}
}

// Ctrl-C ends the wait for other programs.
func TestRenameEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, interrupted := errors.New("busy"), errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		attempts := 0
		err := retryIf(ctx, func(error) bool { return true }, time.Hour, func() error {
			if attempts++; attempts == 3 {
				cancel(interrupted)
			}
			return busy
		}, func() error { return nil })
		if err != interrupted || attempts != 3 {
			t.Errorf("after %d attempts: %v", attempts, err)
		}
	})
}

// Between the first attempt and the next one, another program may write the file.
func TestReplaceInSeesChanges(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	state := func(name string) fs.FileInfo {
		info, _ := root.Lstat(name)
		return info
	}
	absent := state("f")
	if err := unchanged(root, "f", absent); err != nil {
		t.Errorf("no file: %v", err)
	}
	write(t, filepath.Join(dir, "f"), "old", 0o600)
	if err := unchanged(root, "f", absent); err == nil {
		t.Error("there is a new file")
	}
	old := state("f")
	if err := unchanged(root, "f", old); err != nil {
		t.Errorf("the same file: %v", err)
	}
	write(t, filepath.Join(dir, "f"), "longer", 0o600)
	systest.WantError(t, unchanged(root, "f", old), "changed by another program: try again")
	write(t, filepath.Join(dir, "new"), "old", 0o600)
	if err := errors.Join(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "f")), os.Chtimes(filepath.Join(dir, "f"), old.ModTime(), old.ModTime())); err != nil {
		t.Fatal(err)
	}
	if err := unchanged(root, "f", old); err == nil {
		t.Error("another file is in its place")
	}
	systest.Remove(t, filepath.Join(dir, "f"))
	if err := unchanged(root, "f", old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is gone: %v", err)
	}
}
