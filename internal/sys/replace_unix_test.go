//go:build unix

package sys

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func stat(t *testing.T, path string) (fs.FileInfo, *syscall.Stat_t) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info, info.Sys().(*syscall.Stat_t)
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
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

func TestReplaceFileKeepsWhatBelongsToTheFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }

	t.Run("links", func(t *testing.T) {
		write(t, path("a"), "old, and longer", 0o640)
		if err := os.Link(path("a"), path("b")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("a", path("c")); err != nil {
			t.Fatal(err)
		}
		replace(t, path("c"), "new")
		if got, _ := os.ReadFile(path("b")); string(got) != "new" {
			t.Errorf("the other hard link holds %q", got)
		}
		if info, _ := stat(t, path("c")); info.Mode()&fs.ModeSymlink == 0 {
			t.Error("the symbolic link is gone")
		}
		if info, _ := stat(t, path("a")); info.Mode().Perm() != 0o640 {
			t.Errorf("mode %v", info.Mode())
		}
	})
	t.Run("owner", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("only root can give files away")
		}
		write(t, path("theirs"), "old", 0o644)
		if err := os.Chown(path("theirs"), 1234, 4321); err != nil {
			t.Fatal(err)
		}
		replace(t, path("theirs"), "new")
		if info, st := stat(t, path("theirs")); st.Uid != 1234 || st.Gid != 4321 || info.Mode().Perm() != 0o644 {
			t.Errorf("owner %d:%d, mode %v", st.Uid, st.Gid, info.Mode())
		}
	})
	t.Run("directories", func(t *testing.T) { replace(t, path("x/y/z"), "new") })
}

func TestReplaceFileRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, ".pollux-OLD.tmp"), filepath.Join(dir, ".pollux-NEW.tmp")
	write(t, old, "", 0o600)
	write(t, fresh, "", 0o600)
	past := time.Now().Add(-2 * TempTTL)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(dir, "f"), "new")
	if _, err := os.Stat(old); err == nil {
		t.Error("the leftover of a killed process is still there")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Error("a file that another process may be writing is gone")
	}
}

// Between a proposal and its save, a directory or the file can become a link.
func TestReplaceInStaysInside(t *testing.T) {
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, d := range []string{inside, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(outside, "secret"), "old", 0o600)
	for link, to := range map[string]string{"dir": "../out", "file": "../out/secret", "dangling": "../out/new", "here": "real"} {
		if err := os.Symlink(to, filepath.Join(inside, link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(inside, "real"), "old", 0o600)
	root, err := os.OpenRoot(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"dir/secret", "dir/new", "file", "dangling", "here", "../out/secret"} {
		if err := ReplaceIn(root, name, "new"); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(outside, "secret")); string(got) != "old" {
		t.Errorf("the file outside holds %q", got)
	}
	if names, _ := filepath.Glob(filepath.Join(outside, "*")); len(names) != 1 {
		t.Errorf("outside there is now %s", strings.Join(names, ", "))
	}
	if err := ReplaceIn(root, "sub/real", "new"); err != nil {
		t.Error(err)
	}
}
