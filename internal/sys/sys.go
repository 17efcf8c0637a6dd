// Package sys holds everything that differs between operating systems: the
// project's only build tags are here.
package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// A Process is one row of the process table.
type Process struct {
	PID, Parent int
	// Name is the base name of the command as `ps -o command=` shows it; a
	// login shell's starts with a dash.
	Name string
}

// Lookup returns the process with that PID. It fails with [fs.ErrNotExist]
// when there is none.
func Lookup(pid int) (Process, error) {
	if pid <= 0 {
		return Process{}, fs.ErrNotExist
	}
	return lookup(pid)
}

// Alive reports whether a process with that PID exists, whoever owns it.
func Alive(pid int) bool { return pid > 0 && alive(pid) }

// Own reports whether the file belongs to the user that runs this process.
// Where files have no numeric owner it is true.
func Own(info fs.FileInfo) bool { return own(info) }

// SameOwner reports whether two files belong to one user. Where files have no
// numeric owner it is true.
func SameOwner(a, b fs.FileInfo) bool { return sameOwner(a, b) }

// Administered reports whether the file belongs to root and nobody else can
// write it. Where files have no numeric owner it is true.
func Administered(info fs.FileInfo) bool {
	return runtime.GOOS == "windows" || administered(info) && info.Mode().Perm()&0o022 == 0
}

// Namespace names what this process can see: processes and ports of another
// container, or of its host, are not there for it. Empty where there is nothing
// of the kind.
func Namespace() string { return namespace() }

// Shared reports whether a directory may be one of another machine's, or of the
// host of this container: what is named there is not to be judged by the
// processes and ports that are seen here.
func Shared(dir string) bool { return shared(dir) }

// Narrow takes a regular file or a directory of the user's away from all others,
// and follows no link to it.
func Narrow(path string) error { return narrow(path) }

// Shell is a command of the system's shell.
func Shell(line string) *exec.Cmd { return shell(line) }

// FreeSpace is how many bytes the user may still write in dir.
func FreeSpace(dir string) (int64, error) { return freeSpace(dir) }

// Environs are the values that the environment variable has in the user's
// running processes, each once; none where that cannot be seen (it can on
// Linux).
func Environs(key string) []string { return environs(key) }

// StateDir is where Pollux keeps what must survive a restart (the journal):
// $XDG_STATE_HOME/pollux or ~/.local/state/pollux on Unix, the local
// application data on Windows. The directory may not exist yet.
func StateDir() (string, error) {
	if d := os.Getenv("POLLUX_STATE_DIR"); d != "" {
		return filepath.Abs(d)
	}
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "pollux"), nil
	}
	if runtime.GOOS == "windows" {
		d, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		return filepath.Join(d, "pollux", "state"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory (%w): set HOME or POLLUX_STATE_DIR", err)
	}
	return filepath.Join(home, ".local", "state", "pollux"), nil
}

// RuntimeDir returns the directory of the companions' sockets, made if need
// be: $XDG_RUNTIME_DIR/pollux, else pollux-UID in the temporary directory (on
// Windows a hash of the SID, since several users can share that directory). It is
// made private to the user; one that somebody else owns is an error.
func RuntimeDir() (string, error) {
	dir := os.Getenv("POLLUX_RUNTIME_DIR")
	if dir == "" {
		if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) && usable(d) {
			dir = filepath.Join(d, "pollux")
		} else {
			id, err := userID()
			if err != nil {
				return "", fmt.Errorf("the user is not known (%w): set POLLUX_RUNTIME_DIR", err)
			}
			dir = filepath.Join(os.TempDir(), "pollux-"+id)
		}
	}
	return dir, PrivateDir(dir)
}

func usable(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && own(info)
}

// PrivateDir makes dir, and its parents where they are missing, readable for
// the user alone. An existing directory of the user's is narrowed to 0700; one
// of another user's, or a symbolic link, is an error.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%w: set TMPDIR to a directory of your own, for the CLI too", err)
		}
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: remove it", dir)
	case !own(info):
		return fmt.Errorf("%s belongs to another user: set TMPDIR to a directory of your own, for the CLI too", dir)
	case runtime.GOOS != "windows" && info.Mode().Perm() != 0o700:
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// Stamp tells two states of a file apart better than size and times do, where
// the system can: when its content or its properties were last changed, which
// no program can set back, in nanoseconds, and which file it is. Zeros where it
// cannot.
func Stamp(info fs.FileInfo) (changed int64, id uint64) { return stamp(info) }

// TieToParent arranges for the command's process to end when this one does,
// however it ends, where the system can (Linux: a parent-death signal, bound
// to the thread that starts the command, so the caller stays locked to its
// thread until the command has ended).
func TieToParent(cmd *exec.Cmd) { tieToParent(cmd) }

// OpenBrowser shows the URL in the user's browser. It reports false where
// there is no desktop to show it on.
func OpenBrowser(url string) bool {
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.Command("open", url)
	case "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", url)
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" || os.Getenv("SSH_CONNECTION") != "" {
			return false
		}
		cmd = exec.Command("xdg-open", url)
	}
	if cmd.Start() != nil {
		return false
	}
	go cmd.Wait()
	return true
}

// Memory is the resident memory of a process in bytes; 0 where that cannot be
// told.
func Memory(pid int) int64 { return memory(pid) }
