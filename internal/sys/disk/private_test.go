package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

// Tokens are in private files: no other user may read them, wherever the files are.
func TestPrivate(t *testing.T) {
	base := t.TempDir()
	state := func(path string) fs.FileInfo {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	private := func(path string) {
		t.Helper()
		if info := state(path); !Private(path, info) || OthersWrite(path, info) || !Own(path, info) {
			t.Errorf("%s is %v: private %v, others write %v, own %v", path, info.Mode(),
				Private(path, info), OthersWrite(path, info), Own(path, info))
		}
	}
	shared := filepath.Join(base, "shared")
	open := func(path string) {
		t.Helper()
		if err := systest.Share(path); err != nil {
			t.Fatal(err)
		}
		if info := state(path); Private(path, info) || !OthersWrite(path, info) {
			t.Fatalf("%s is not open to others: %v", path, info.Mode())
		}
	}
	systest.MakeDir(t, shared)
	open(shared)

	deep := filepath.Join(shared, "a", "b")
	if err := PrivateDir(deep); err != nil {
		t.Fatal(err)
	}
	private(filepath.Dir(deep))
	private(deep)
	for _, name := range []string{"file", "text"} {
		if err := WriteFile(filepath.Join(shared, name), []byte("token")); err != nil {
			t.Fatal(err)
		}
		private(filepath.Join(shared, name))
	}
	temp, err := MkdirTemp(shared, "run-*-x")
	if err != nil {
		t.Fatal(err)
	}
	if ok, _ := filepath.Match("run-?*-x", filepath.Base(temp)); !ok {
		t.Errorf("its name is %s", temp)
	}
	private(temp)
	settings := filepath.Join(shared, "settings")
	if err := EditFile(settings, "", "a", 0o600); err != nil {
		t.Fatal(err)
	}
	private(settings)
	if err := EditFile(settings, "a", "b", 0o644); err != nil {
		t.Fatal(err)
	}
	private(settings)
	if err := ReplaceFile(settings, "c"); err != nil {
		t.Fatal(err)
	}
	private(settings)

	// Directories and files that others could read become private.
	open(deep)
	if err := PrivateDir(deep); err != nil {
		t.Fatal(err)
	}
	private(deep)
	open(settings)
	if err := Narrow(settings); err != nil {
		t.Fatal(err)
	}
	private(settings)
	open(deep)
	if err := DenyWrites(deep, state(deep)); err != nil {
		t.Fatal(err)
	}
	if OthersWrite(deep, state(deep)) {
		t.Error("others can still write")
	}
	if err := PrivateDir(settings); err == nil {
		t.Error("a file is a private directory")
	}
}

// Another user's file is not the user's own, and no private directory.
func TestForeignFiles(t *testing.T) {
	path := foreignDir(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	mine := t.TempDir()
	mineInfo, err := os.Stat(mine)
	if err != nil {
		t.Fatal(err)
	}
	if Own(path, info) || SameOwner(path, info, mine, mineInfo) || !SameOwner(path, info, path, info) {
		t.Errorf("%s counts as mine", path)
	}
	if err := PrivateDir(path); !errors.Is(err, ErrForeign) {
		t.Errorf("PrivateDir: %v", err)
	}
	if err := Narrow(path); err == nil {
		t.Error("Narrow changed it")
	}
}
