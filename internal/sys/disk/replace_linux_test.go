package disk

import (
	"path/filepath"
	"syscall"
	"testing"
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
