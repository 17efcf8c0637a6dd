//go:build unix

package sys

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestListenPrivate(t *testing.T) {
	dir, err := os.MkdirTemp("", "px") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("POLLUX_RUNTIME_DIR", dir)
	left := filepath.Join(dir, "test-1-LEFT.sock")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
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
	if _, err := ListenSocket(filepath.Join(long, "s")); !errors.Is(err, ErrLongPath) {
		t.Errorf("the error is %v", err)
	}
	short, err := os.MkdirTemp("/tmp", "px")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	fits := filepath.Join(short, strings.Repeat("s", maxSocketPath-len(short)-1))
	l, err := ListenSocket(fits)
	if err != nil {
		t.Fatalf("a path of %d bytes: %v", len(fits), err)
	}
	l.Close()
}

// The sockets are in /tmp if their paths would be too long in the temporary directory.
func TestRuntimeDirIsShort(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "px")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	dir := func(length int) string {
		path := filepath.Join(base, strings.Repeat("d", length-len(base)-1))
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := "pollux-" + strconv.Itoa(os.Getuid())
	fits, long := dir(maxRuntimeDir-len(own)-1), dir(maxRuntimeDir-len(own))
	for name, test := range map[string]struct{ runtime, tmp, want string }{
		"a short directory":          {"", base, filepath.Join(base, own)},
		"the longest that fits":      {"", fits, filepath.Join(fits, own)},
		"one that is too long":       {"", long, filepath.Join("/tmp", own)},
		"a short one of the session": {fits, long, filepath.Join(fits, "pollux")},
		"a long one of the session":  {dir(maxRuntimeDir), base, filepath.Join(base, own)},
	} {
		t.Setenv("POLLUX_RUNTIME_DIR", "")
		t.Setenv("XDG_RUNTIME_DIR", test.runtime)
		t.Setenv("TMPDIR", test.tmp)
		if got, err := RuntimeDir(); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
		temp, err := ShortTempDir("px")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(temp); err != nil || len(temp) > maxRuntimeDir {
			t.Errorf("%s: the temporary directory is %s, %v", name, temp, err)
		}
	}
}
