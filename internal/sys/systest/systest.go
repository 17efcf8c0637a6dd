// Package systest hides from tests what differs between operating systems, and writes their files.
package systest

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// Link makes a symbolic link. It skips the test where links cannot be made: on Windows
// most users may not, and Wine 10 only pretends to.
func Link(t testing.TB, target, path string) {
	t.Helper()
	if err := TryLink(target, path); err != nil {
		SkipOnWine(t, "it makes no symbolic links")
		t.Skip("no symbolic links here: ", err)
	}
}

// TryLink is [os.Symlink], with an error if the link is not there afterwards.
func TryLink(target, path string) error {
	if err := os.Symlink(target, path); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != fs.ModeSymlink {
		err = &fs.PathError{Op: "symlink", Path: path, Err: fs.ErrInvalid}
	}
	return err
}

// Alias returns another path of a directory: through a symbolic link or, where links cannot
// be made, in upper case.
func Alias(t testing.TB, dir string) string {
	t.Helper()
	alias := filepath.Join(t.TempDir(), "alias")
	err := TryLink(dir, alias)
	if err == nil {
		return alias
	}
	if runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	return strings.ToUpper(dir)
}

// SetTemp makes dir the temporary directory, for Go and for Node, on each system.
func SetTemp(t testing.TB, dir string) {
	t.Helper()
	for _, key := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(key, dir)
	}
}

// SetHome makes dir the user's home directory on each system.
func SetHome(t testing.TB, dir string) {
	t.Helper()
	for _, key := range []string{"HOME", "USERPROFILE"} {
		t.Setenv(key, dir)
	}
}

// Abs returns an absolute path of this system for one of Unix. On Windows it is on the
// drive of the temporary directory.
func Abs(path string) string {
	return filepath.VolumeName(os.TempDir()) + filepath.FromSlash(path)
}

// InJSON replaces each path below /project in the text of a JSON document by [Abs] of it,
// also in file URLs in which nothing is escaped.
func InJSON(text string) string {
	at := strings.ReplaceAll(Abs("/project/"), `\`, `\\`)
	return strings.ReplaceAll(text, "/project/", at)
}

// VerifyTestMain runs the tests of a package, and fails if they leave a goroutine behind
// that the options do not ignore.
func VerifyTestMain(m *testing.M, options ...goleak.Option) {
	if os.Getenv(envWait) != "" {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	// It waits for the events of all pipes on Windows, and never ends.
	goleak.VerifyTestMain(m, append(options, goleak.IgnoreAnyFunction("github.com/Microsoft/go-winio.ioCompletionProcessor"))...)
}

// OnWine reports whether the tests run on Wine rather than on Windows.
func OnWine() bool {
	if runtime.GOOS != "windows" {
		return false
	}
	_, err := os.Stat(filepath.Join(os.Getenv("SystemRoot"), "system32", "winecfg.exe"))
	return err == nil
}

// SkipOnWine skips the test on Wine, which cannot do what Windows does there, for the
// reason that it is given.
func SkipOnWine(t testing.TB, reason string) {
	t.Helper()
	if OnWine() {
		t.Skip("Wine:", reason)
	}
}

// envWait makes a test program wait for the end of its input.
const envWait = "POLLUX_TEST_WAIT"

// Process starts a process that lives until the test ends, and returns its ID. The
// package's tests run in [VerifyTestMain].
func Process(t testing.TB) (pid int) {
	t.Helper()
	cmd := exec.Command(Self(t))
	cmd.Env = append(os.Environ(), envWait+"=1")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return cmd.Process.Pid
}
