package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pollux/internal/sys/systest"
)

func TestReplaceFileKeepsExtendedAttributes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old", 0o600)
	if err := syscall.Setxattr(path, "user.note", []byte("mine"), 0); err != nil {
		t.Skipf("this file system has no extended attributes: %v", err)
	}
	replace(t, path, "new")
	buf := make([]byte, 16)
	if n, err := syscall.Getxattr(path, "user.note", buf); err != nil || string(buf[:n]) != "mine" {
		t.Errorf("the attribute is %q, %v", buf[:max(n, 0)], err)
	}
}

// A file that is mounted into a container could not be replaced: no other file can take its place.
func TestReplaceMountedFile(t *testing.T) {
	systest.NeedRoot(t)
	if path := os.Getenv("POLLUX_TEST_MOUNTED"); path != "" {
		replace(t, path, "new")
		return
	}
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old, and longer", 0o640)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		`mount --bind "$POLLUX_TEST_MOUNTED" "$POLLUX_TEST_MOUNTED" && exec "$0" "-test.run=^TestReplaceMountedFile$"`, os.Args[0])
	cmd.Env = append(os.Environ(), "POLLUX_TEST_MOUNTED="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The disk is full in the middle of a write in place: the file keeps its content.
func TestReplaceFileOnAFullDisk(t *testing.T) {
	systest.NeedRoot(t)
	dir := os.Getenv("POLLUX_TEST_FULL")
	if dir == "" {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
			`mount -t tmpfs -o size=256k none "$POLLUX_TEST_FULL" && exec "$0" "-test.run=^TestReplaceFileOnAFullDisk$"`, os.Args[0])
		cmd.Env = append(os.Environ(), "POLLUX_TEST_FULL="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	path := filepath.Join(dir, "f")
	old := strings.Repeat("old\n", 30<<10)
	write(t, path, old, 0o600)
	if err := os.Link(path, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(path, strings.Repeat("new\n", 300<<10)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("ReplaceFile = %v", err)
	}
	systest.WantFile(t, path, old)
}
