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
	"time"
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
// be: $XDG_RUNTIME_DIR/pollux, else pollux-UID in the temporary directory. It
// is made private to the user; one that somebody else owns is an error.
func RuntimeDir() (string, error) {
	dir := os.Getenv("POLLUX_RUNTIME_DIR")
	if dir == "" {
		if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) && usable(d) {
			dir = filepath.Join(d, "pollux")
		} else {
			dir = filepath.Join(os.TempDir(), fmt.Sprintf("pollux-%d", os.Getuid()))
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

// A Child is a process of ours that leads a group of its own, so that it and
// what it starts can be ended together. It does not outlive us, however we
// end, where the system can promise that: by a parent-death signal on Linux, a
// job object on Windows.
type Child struct {
	cmd  *exec.Cmd
	job  job
	done chan struct{}
}

// StartChild starts the command as a [Child]. Its standard streams must be
// files (or nil): a pipe that a grandchild holds open would keep the child
// from being done.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	c := &Child{cmd: cmd, done: make(chan struct{})}
	leadGroup(cmd)
	TieToParent(cmd)
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		runtime.LockOSThread() // which the parent-death signal is bound to
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.job, err = adopt(cmd.Process)
			if err != nil {
				cmd.Process.Kill()
			}
		}
		started <- err
		if cmd.Process != nil {
			cmd.Wait()
			endGroup(cmd.Process.Pid, c.job)
		}
	}()
	if err := <-started; err != nil {
		<-c.done
		return nil, err
	}
	return c, nil
}

// Memory is the resident memory of a process in bytes; 0 where that cannot be
// told.
func Memory(pid int) int64 { return memory(pid) }

// PID is the child's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended and what was left of its group has
// been killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// ExitCode is the child's, as a shell gives it. It is valid once Done is
// closed.
func (c *Child) ExitCode() int { return ExitCode(c.cmd.ProcessState) }

// Stop ends the child and all below it: politely, and again every half second,
// since a program that is still starting may lose the signal; by force after
// the grace. It returns when the child is gone, or at the latest a few seconds
// after the grace, should the system not let go of it.
func (c *Child) Stop(grace time.Duration) {
	force := time.NewTimer(grace)
	defer force.Stop()
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	terminateTree(c.PID(), c.job)
	for {
		select {
		case <-c.done:
			return
		case <-again.C:
			terminateTree(c.PID(), c.job)
		case <-force.C:
			killTree(c.PID(), c.job)
			select {
			case <-c.done:
			case <-time.After(3 * time.Second):
			}
			return
		}
	}
}
