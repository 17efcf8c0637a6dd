package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"pollux/internal/sys/systest"
)

// What another program has written since before was read stays.
func TestEditFile(t *testing.T) {
	const before, after, theirs = "before", "after", "theirs"
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o640), os.Chmod(path, 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		before string
		early  func(t *testing.T, path string)
		want   string
		err    error
	}{
		{name: "as it was", before: before, early: func(t *testing.T, path string) { write(t, path, before) }, want: after},
		{name: "a new file", want: after},
		{name: "an empty file", early: func(t *testing.T, path string) { write(t, path, "") }, want: after},
		{name: "changed before", before: before, early: func(t *testing.T, path string) { write(t, path, theirs) }, want: theirs, err: ErrChanged},
		{name: "made before", early: func(t *testing.T, path string) { write(t, path, theirs) }, want: theirs, err: ErrChanged},
		{name: "removed before", before: before, err: ErrChanged},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "settings.json")
			if test.early != nil {
				test.early(t, path)
			}
			if err := EditFile(path, test.before, after, 0o600); !errors.Is(err, test.err) {
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
			if test.early == nil {
				wantMode = 0o600
			}
			if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm() != wantMode {
				t.Errorf("mode %v, want %v", info.Mode(), wantMode)
			}
		})
	}
}

// A program that makes the file at the last moment keeps its text.
func TestEditFileMadeByAnother(t *testing.T) {
	dir := t.TempDir()
	temp, path := filepath.Join(dir, "temp"), filepath.Join(dir, "settings.json")
	for file, text := range map[string]string{temp: "ours", path: "theirs"} {
		systest.WriteFile(t, file, text)
	}
	err := putNew(temp, path, os.Link, os.Rename)
	if got, _ := os.ReadFile(path); !errors.Is(err, fs.ErrExist) || string(got) != "theirs" {
		t.Errorf("the file holds %q (%v)", got, err)
	}
}

// Settings are often links into a directory under version control.
func TestEditFileFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	systest.WriteFile(t, file, "a")
	systest.Link(t, file, link)
	if err := EditFile(link, "a", "b", 0o644); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(file)
	if info, err := os.Lstat(link); string(got) != "b" || err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the file holds %q, the link is %v (%v)", got, info.Mode(), err)
	}
}
