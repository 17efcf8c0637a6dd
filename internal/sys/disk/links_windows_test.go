package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

func TestJunction(t *testing.T) {
	dir, err := EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, junction := filepath.Join(dir, "data", "Work"), filepath.Join(dir, "junction")
	if err := errors.Join(os.MkdirAll(work, 0o700), os.WriteFile(filepath.Join(work, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cmd", "/c", "mklink", "/J", junction, filepath.Dir(work)).CombinedOutput(); err != nil {
		systest.SkipOnWine(t, "it makes no junctions")
		t.Fatalf("%v: %s", err, out)
	}
	for path, want := range map[string]string{
		junction:                                filepath.Dir(work),
		filepath.Join(junction, "WORK"):         work,
		filepath.Join(junction, "work", "FILE"): filepath.Join(work, "file"),
	} {
		if got, err := EvalSymlinks(path); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %s", path, got, err, want)
		}
	}
}
