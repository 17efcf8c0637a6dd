package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Windows limits paths to 260 characters unless a program handles longer ones.
func TestLongPath(t *testing.T) {
	dir := t.TempDir()
	for range 6 {
		dir = filepath.Join(dir, strings.Repeat("long ", 10)+"name")
	}
	path := filepath.Join(dir, "file.txt")
	if err := PrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteText(path, "one"), ReplaceFile(path, "two")); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(path, 10); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := os.Lstat(path); err != nil || !Own(path, info) {
		t.Errorf("the file is not the user's: %v", err)
	}
	f, err := OpenShared(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(f, " three")
	if err = errors.Join(err, f.Close()); err != nil {
		t.Error(err)
	}
	if got, err := ReadFile(path, 10); err != nil || string(got) != "two three" {
		t.Errorf("%q, %v", got, err)
	}
	lock, err := Lock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if _, err := MkdirTemp(dir, "temp-"); err != nil {
		t.Error(err)
	}
}
