package disk

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file that a process of Pollux reads or appends to can be renamed and removed: on
// Windows the log never began again, since each process had it open.
func TestOpenShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w, err := OpenShared(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	again, err := OpenShared(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	r, err := OpenShared(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	io.WriteString(w, "one ")
	io.WriteString(again, "two ")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, "three")
	if got, err := io.ReadAll(r); err != nil || string(got) != "one two three" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Remove(path + ".1"); err != nil {
		t.Error(err)
	}
	if _, err := OpenShared(path, os.O_RDONLY, 0); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
