//go:build unix

package disk

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// The sockets are in /tmp if their paths would be too long in the temporary directory.
func TestRuntimeDirIsShort(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "px")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	dir := func(length int) string {
		path := filepath.Join(base, strings.Repeat("d", length-len(base)-1))
		systest.MakeDir(t, path)
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
