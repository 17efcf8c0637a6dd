//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A process that was killed between rename and chmod left a script 0600.
func TestReplaceFileNeverNarrowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.sh")
	write(t, path, "old", 0o755)
	done, wrong := make(chan bool), make(chan fs.FileMode, 1)
	go func() {
		defer close(wrong)
		for {
			select {
			case <-done:
				return
			default:
			}
			if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o755 {
				wrong <- info.Mode()
				return
			}
		}
	}()
	for range 300 {
		if err := ReplaceFile(path, "new"); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	if mode, ok := <-wrong; ok {
		t.Errorf("the file had mode %v for a moment", mode)
	}
}

func TestReplaceFileKeepsModeAndOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "old", 0o640)
	owner := os.Getuid()
	if owner == 0 { // only root can give files away
		owner = 1234
		if err := os.Chown(path, owner, 4321); err != nil {
			t.Fatal(err)
		}
	}
	replace(t, path, "new")
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != owner || info.Mode() != 0o640 {
		t.Errorf("owner %d, mode %v", uid, info.Mode())
	}
}

// In a directory that the user may not change, a file that the user may change could not be
// written. Where no file can be made, the error named only the temporary file.
func TestReplaceFileInAReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "old, and longer", 0o640)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if os.WriteFile(filepath.Join(dir, "probe"), nil, 0o600) == nil { // root ignores modes
		setpriv, err := exec.LookPath("setpriv")
		if err != nil || os.Getenv("POLLUX_TEST_UNPRIVILEGED") != "" {
			t.Skip("root ignores modes", err)
		}
		cmd := exec.CommandContext(t.Context(), setpriv, "--bounding-set=-dac_override", os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "POLLUX_TEST_UNPRIVILEGED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	replace(t, path, "new")
	err := ReplaceFile(filepath.Join(dir, "g"), "new")
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir+": ") {
		t.Errorf("a new file: %v", err)
	}
}
