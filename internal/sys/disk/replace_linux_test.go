package disk

import (
	"os"
	"os/exec"
	"path/filepath"
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
