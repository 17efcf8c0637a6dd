package paths

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// macOS is how its file systems compare names, on every system.
var macOS = style{"/", true, true}

// A foldingDisk finds the files below dir, a directory of a disk that does not fold, by any
// spelling.
type foldingDisk struct {
	dir string
	key func(name string) string
}

// exact returns a path as the disk spells it.
func (f foldingDisk) exact(path string) (string, error) {
	rel, err := filepath.Rel(f.dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return path, err
	}
	found := f.dir
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		names, err := readNames(found)
		if err != nil {
			return "", err
		}
		next := ""
		for _, name := range names {
			if part == name || part != "." && next == "" && f.key(name) == f.key(part) {
				next = name
			}
		}
		if next == "" && part != "." {
			return "", &fs.PathError{Op: "lstat", Path: path, Err: fs.ErrNotExist}
		}
		found = filepath.Join(found, next)
	}
	return found, nil
}

func (f foldingDisk) speller() *speller {
	return &speller{
		style: macOS,
		resolve: func(path string) (string, error) {
			exact, err := f.exact(path)
			if err != nil {
				return "", err
			}
			// The parts that are no symbolic links keep their spelling.
			if resolved, err := filepath.EvalSymlinks(exact); err != nil || resolved != exact {
				return resolved, err
			}
			return filepath.Clean(path), nil
		},
		path: f.exact,
		names: func(dir string) ([]string, error) {
			dir, err := f.exact(dir)
			if err != nil {
				return nil, err
			}
			return readNames(dir)
		},
		stat: func(path string) (os.FileInfo, error) {
			path, err := f.exact(path)
			if err != nil {
				return nil, err
			}
			return os.Lstat(path)
		},
	}
}

// On a Mac, a workspace opened as ~/Code did not have the files of ~/code, and a file
// whose name has an accent was two files.
func TestSpellings(t *testing.T) {
	dir := systest.Dir(t)
	for _, name := range []string{
		"Work/src/Main.go", "Work/Cafe\u0301/menu.txt", "Work/r\u00e9sum\u00e9.md", "Work/stra\u00dfe", "Work/hard", "other/away",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		systest.WriteFile(t, path, "")
	}
	if err := os.Link(filepath.Join(dir, "other", "away"), filepath.Join(dir, "Work", "Linked")); err != nil {
		t.Fatal(err)
	}
	links := systest.TryLink("Work", filepath.Join(dir, "Link")) == nil // Windows needs a privilege
	folding := foldingDisk{dir, macOS.key}
	whole := folding.speller()
	closed := folding.speller() // nothing can be opened, but directories can be listed
	closed.path = func(string) (string, error) { return "", fs.ErrPermission }
	blind := folding.speller() // nothing can be opened or listed
	blind.path, blind.names = closed.path, func(string) ([]string, error) { return nil, fs.ErrPermission }
	elsewhere := folding.speller() // files have the name of another hard link
	elsewhere.path = func(path string) (string, error) {
		if exact, err := folding.exact(path); err != nil || filepath.Base(exact) != "Linked" {
			return exact, err
		}
		return filepath.Join(dir, "other", "away"), nil
	}
	sharp := func(name string) string { return strings.ReplaceAll(macOS.key(name), "\u00df", "ss") }
	wide := foldingDisk{dir, sharp}.speller() // which takes more for the same than we do
	for _, test := range []struct {
		disk       *speller
		path, want string
	}{
		{whole, "Work/src/Main.go", "Work/src/Main.go"},
		{whole, "work/SRC/main.GO", "Work/src/Main.go"},
		{whole, "WORK/caf\u00e9/Menu.txt", "Work/Cafe\u0301/menu.txt"},
		{whole, "work/re\u0301sume\u0301.md", "Work/r\u00e9sum\u00e9.md"},
		{whole, "work/./src/../SRC", "Work/src"},
		{whole, "work/New/file", "Work/New/file"},
		{whole, "none", "none"},
		{whole, ".", "."},
		{closed, "work/SRC/main.GO", "Work/src/Main.go"},
		{closed, "work/linked", "Work/Linked"},
		{blind, "work/src", "work/src"},
		{elsewhere, "work/linked", "Work/Linked"},
		{elsewhere, "Work/Linked", "Work/Linked"},
		{wide, "work/STRASSE", "Work/stra\u00dfe"},
	} {
		want := filepath.Join(dir, filepath.FromSlash(test.want))
		if got := test.disk.real(filepath.Join(dir, filepath.FromSlash(test.path))); got != want {
			t.Errorf("real(%q) = %q, want %q", test.path, got, want)
		}
	}
	if links {
		if got, want := whole.real(filepath.Join(dir, "link", "SRC")), filepath.Join(dir, "Work", "src"); got != want {
			t.Errorf("through a link: %q, want %q", got, want)
		}
	}
	if got, err := whole.existing(filepath.Join(dir, "work", "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist is %q, %v", got, err)
	}
}

// A volume can tell cases apart. Then two names are two files.
func TestSpellingsThatAreFiles(t *testing.T) {
	dir := systest.Dir(t)
	for _, name := range []string{"a", "A"} {
		systest.WriteFile(t, filepath.Join(dir, name), "")
	}
	if names, err := readNames(dir); err != nil || len(names) != 2 {
		t.Skip("this volume takes the names for one file")
	}
	for _, d := range []*speller{
		{macOS, filepath.EvalSymlinks, func(path string) (string, error) { return path, nil }, readNames, os.Lstat},
		{macOS, filepath.EvalSymlinks, func(string) (string, error) { return "", fs.ErrPermission }, readNames, os.Lstat},
	} {
		for _, name := range []string{"a", "A"} {
			if path := filepath.Join(dir, name); d.real(path) != path {
				t.Errorf("%s is %s", path, d.real(path))
			}
		}
	}
}

func TestSame(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"/Work/A", "/work/a", true}, {"/\u00c9", "/e\u0301", true}, {"/a", "/b", false}, {"/works", "/work\u017F", false},
	} {
		if got := macOS.key(test.a) == macOS.key(test.b); got != test.want {
			t.Errorf("%q and %q are the same: %v", test.a, test.b, got)
		}
	}
	if !Same("/a", "/a") || Same("/a", "/b") {
		t.Error("a path differs from itself, or not from another one")
	}
}
