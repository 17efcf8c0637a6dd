package disk

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"pollux/internal/sys/systest"
)

func TestDirLstat(t *testing.T) {
	base := t.TempDir()
	systest.MakeDir(t, filepath.Join(base, "sub", "deep"))
	file := filepath.Join(base, "sub", "file")
	systest.WriteFile(t, file, "text")
	d, err := OpenDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"sub/file", "sub/deep", "sub"} {
		info, err := os.Lstat(filepath.Join(base, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		size := info.Size()
		if info.IsDir() && runtime.GOOS == "windows" { // any number
			size = got.Size
		}
		changed, id := Stamp(info)
		if runtime.GOOS == "windows" { // its FileInfo has neither
			changed, id = got.Changed, got.ID
		}
		if got.IsDir != info.IsDir() || got.Size != size || got.Modified != info.ModTime().UnixNano() ||
			got.Changed != changed || got.ID != id || id == 0 || changed == 0 {
			t.Errorf("%s: %+v, want %v of %d bytes", name, got, info.Mode(), info.Size())
		}
	}
	before, err := d.Lstat("sub/file")
	if err != nil {
		t.Fatal(err)
	}
	// A file takes its place.
	other := filepath.Join(base, "other")
	if err := errors.Join(os.WriteFile(other, []byte("text"), 0o644), os.Rename(other, file)); err != nil {
		t.Fatal(err)
	}
	if replaced, err := d.Lstat("sub/file"); err != nil || replaced.ID == before.ID {
		t.Errorf("%+v, then %+v, %v", before, replaced, err)
	}
	if got, err := d.Lstat("none"); !os.IsNotExist(err) {
		t.Errorf("a missing file: %+v, %v", got, err)
	}
	if systest.TryLink(base, filepath.Join(base, "link")) == nil {
		if got, err := d.Lstat("link"); err != nil || got.IsDir {
			t.Errorf("a link: %+v, %v", got, err)
		}
	}
	before, err = d.Lstat("sub/file")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	if after, err := d.Lstat("sub/file"); err != nil || after.Mode == before.Mode {
		t.Errorf("mode %o, %v", after.Mode, err)
	}
	if _, err := OpenDir(filepath.Join(base, "none")); !os.IsNotExist(err) {
		t.Errorf("a missing directory: %v", err)
	}
}
