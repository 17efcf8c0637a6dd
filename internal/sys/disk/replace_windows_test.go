package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/windows"

	"pollux/internal/sys/systest"
)

func attributes(t *testing.T, path string) uint32 {
	t.Helper()
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := windows.GetFileAttributes(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReplaceFileKeepsAttributes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old, and longer", 0o600)
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetFileAttributes(name, windows.FILE_ATTRIBUTE_HIDDEN|windows.FILE_ATTRIBUTE_SYSTEM); err != nil {
		t.Fatal(err)
	}
	if attributes(t, path)&windows.FILE_ATTRIBUTE_HIDDEN == 0 {
		systest.SkipOnWine(t, "it keeps no attributes")
	}
	replace(t, path, "new")
	if err := EditFile(path, "new", "newer", 0o600); err != nil {
		t.Fatal(err)
	}
	if a := attributes(t, path); a&windows.FILE_ATTRIBUTE_HIDDEN == 0 || a&windows.FILE_ATTRIBUTE_SYSTEM == 0 {
		t.Errorf("the attributes are %#x", a)
	}
}

// The error named chmod, which Windows does not have.
func TestReplaceFileReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old", 0o400)
	if err := ReplaceFile(path, "new"); err == nil || !strings.Contains(err.Error(), "attrib -r") {
		t.Errorf("the error is %v", err)
	}
}

func TestReplaceFileKeepsStreams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old", 0o600)
	if err := os.WriteFile(path+":note", []byte("mine"), 0o600); err != nil {
		systest.SkipOnWine(t, "it has no data streams")
		t.Fatal(err)
	}
	replace(t, path, "new")
	if got, err := os.ReadFile(path + ":note"); err != nil || string(got) != "mine" {
		t.Errorf("the stream holds %q, %v", got, err)
	}
}

// open opens a file in such a way that other programs cannot rename or remove it.
func open(t *testing.T, path string, share uint32) (closeFile func()) {
	t.Helper()
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ, share, nil, windows.OPEN_EXISTING, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func() { windows.CloseHandle(h) }
}

func TestReplaceFileWaitsForOtherPrograms(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "old", 0o600)
	closeFile := open(t, path, windows.FILE_SHARE_READ)
	first := true
	err := rename(func() error {
		write(t, path+".new", "new", 0o600)
		return os.Rename(path+".new", path)
	}, func() error {
		if first {
			closeFile()
		}
		first = false
		return nil
	})
	if got, _ := os.ReadFile(path); err != nil || first || string(got) != "new" {
		t.Errorf("the file holds %q, %v; it was open: %v", got, err, !first)
	}

	closeFile = open(t, path, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE) // as programs in Go and Java do
	if err := ReplaceFile(path, "newer, in place"); err != nil {
		t.Error(err)
	}
	closeFile()
	replace(t, path, "new")
	defer open(t, path, windows.FILE_SHARE_READ)()
	err = ReplaceFile(path, "newest")
	if !errors.Is(err, windows.ERROR_SHARING_VIOLATION) && !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		t.Errorf("the error is %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Errorf("the file holds %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".pollux-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A new file that a virus scanner read kept `pollux install` from writing settings, and a
// companion from listening.
func TestNewFileWaitsForOtherPrograms(t *testing.T) {
	for name, put := range map[string]func(from, to string, move func(from, to string) error) error{
		"settings": func(from, to string, move func(from, to string) error) error {
			noLinks := func(string, string) error { return windows.ERROR_INVALID_FUNCTION } // as FAT says
			return putNew(from, to, noLinks, move)
		},
		"socket": func(from, to string, move func(from, to string) error) error {
			return RenameNew(from, to, func(from, to *uint16, _ uint32) error {
				return move(windows.UTF16PtrToString(from), windows.UTF16PtrToString(to))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
				write(t, from, "new", 0o600)
				attempts := 0
				busy := func(from, to string) error {
					if attempts++; attempts <= 3 {
						return windows.ERROR_ACCESS_DENIED
					}
					return os.Rename(from, to)
				}
				if err := put(from, to, busy); err != nil || attempts != 4 {
					t.Errorf("after %d attempts: %v", attempts, err)
				}
				if got, _ := os.ReadFile(to); string(got) != "new" {
					t.Errorf("the file holds %q", got)
				}
			})
		})
	}
}

// A file that another program makes while [EditFile] waits stays.
func TestNewFileSeesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		write(t, from, "new", 0o600)
		err := putNew(from, to, func(string, string) error { return windows.ERROR_INVALID_FUNCTION }, func(string, string) error {
			write(t, to, "theirs", 0o600)
			return windows.ERROR_ACCESS_DENIED
		})
		if got, _ := os.ReadFile(to); !errors.Is(err, fs.ErrExist) || string(got) != "theirs" {
			t.Errorf("the file holds %q, %v", got, err)
		}
	})
}
