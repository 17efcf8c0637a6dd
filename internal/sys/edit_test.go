package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"pollux/internal/sys/systest"
)

// A program that wrote the same file between the last check and the rename lost
// its text.
func TestEditFile(t *testing.T) {
	const before, after, theirs = "before", "after", "theirs"
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o640), os.Chmod(path, 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	swaps := runtime.GOOS == "linux" || runtime.GOOS == "darwin"
	for _, test := range []struct {
		name   string
		before string
		early  func(t *testing.T, path string)
		late   func(t *testing.T, path string)
		want   string
		err    error
		swaps  bool
	}{
		{name: "as it was", before: before, early: func(t *testing.T, path string) { write(t, path, before) }, want: after},
		{name: "a new file", want: after},
		{name: "an empty file", early: func(t *testing.T, path string) { write(t, path, "") }, want: after},
		{name: "changed before", before: before, early: func(t *testing.T, path string) { write(t, path, theirs) }, want: theirs, err: ErrChanged},
		{name: "made before", early: func(t *testing.T, path string) { write(t, path, theirs) }, want: theirs, err: ErrChanged},
		{name: "removed before", before: before, err: ErrChanged},
		{name: "made at the last moment", late: func(t *testing.T, path string) { write(t, path, theirs) }, want: theirs, err: ErrChanged},
		{
			name: "replaced at the last moment", before: before, swaps: true,
			early: func(t *testing.T, path string) { write(t, path, before) },
			late: func(t *testing.T, path string) {
				write(t, path+".new", theirs)
				if err := os.Rename(path+".new", path); err != nil {
					t.Fatal(err)
				}
			},
			want: theirs, err: ErrChanged,
		},
		{
			name: "written at the last moment", before: before, swaps: true,
			early: func(t *testing.T, path string) { write(t, path, before) },
			late:  func(t *testing.T, path string) { write(t, path, theirs) },
			want:  theirs, err: ErrChanged,
		},
		{
			name: "removed at the last moment", before: before, swaps: true,
			early: func(t *testing.T, path string) { write(t, path, before) },
			late: func(t *testing.T, path string) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			},
			err: ErrChanged,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.swaps && !swaps {
				t.Skip("only Linux and macOS swap two files in one step")
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "settings.json")
			if test.early != nil {
				test.early(t, path)
			}
			late := func() {}
			if test.late != nil {
				late = func() { test.late(t, path) }
			}
			if err := editFile(path, test.before, after, 0o600, late); !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			got, err := os.ReadFile(path)
			if string(got) != test.want || err != nil && (test.want != "" || !errors.Is(err, fs.ErrNotExist)) {
				t.Errorf("the file holds %q (%v), want %q", got, err, test.want)
			}
			left, _ := filepath.Glob(filepath.Join(dir, ".pollux-*"))
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			wantMode := fs.FileMode(0o640)
			if test.early == nil && test.late == nil {
				wantMode = 0o600
			}
			if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm() != wantMode {
				t.Errorf("mode %v, want %v", info.Mode(), wantMode)
			}
		})
	}
}

// Settings are often links into a directory under version control.
func TestEditFileFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	systest.Link(t, file, link)
	if err := EditFile(link, "a", "b", 0o644); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(file)
	if info, err := os.Lstat(link); string(got) != "b" || err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the file holds %q, the link is %v (%v)", got, info.Mode(), err)
	}
}
