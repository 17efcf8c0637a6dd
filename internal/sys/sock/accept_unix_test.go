//go:build unix

package sock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/systest"
)

func TestListenPrivate(t *testing.T) {
	dir := systest.ShortDir(t)
	t.Setenv("POLLUX_RUNTIME_DIR", dir)
	left := filepath.Join(dir, "test-1-LEFT.sock")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	old := time.Now().Add(-time.Minute)
	systest.SetTime(t, left, old)
	one, scheme, address, err := ListenPrivate("test")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, _, other, err := ListenPrivate("test")
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if scheme != "unix" || address == other || filepath.Dir(address) != dir {
		t.Errorf("%s %s, %s", scheme, address, other)
	}
	for path, mode := range map[string]os.FileMode{address: 0o600, dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the socket of a killed process is still there")
	}
}

// On a Mac, a long TMPDIR gave "bind: invalid argument".
func TestSocketPathsAreShort(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", maxSocketPath))
	if _, err := Listen(filepath.Join(long, "s")); !errors.Is(err, ErrLongPath) {
		t.Errorf("the error is %v", err)
	}
	short, err := os.MkdirTemp("/tmp", "px")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	fits := filepath.Join(short, strings.Repeat("s", maxSocketPath-len(short)-1))
	l, err := Listen(fits)
	if err != nil {
		t.Fatalf("a path of %d bytes: %v", len(fits), err)
	}
	l.Close()
}
