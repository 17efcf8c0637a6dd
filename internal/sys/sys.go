// Package sys contains everything that differs between operating systems, and
// all of the project's build tags. It starts child processes, and reads,
// replaces and locks files safely.
package sys

import (
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
	// Name is the base name of the command as `ps -o command=` shows it. That of
	// a login shell starts with a dash.
	Name string
}

// Lookup returns the process with that PID, or [fs.ErrNotExist].
func Lookup(pid int) (Process, error) {
	if pid <= 0 {
		return Process{}, fs.ErrNotExist
	}
	return lookup(pid)
}

// WorkingDir returns the working directory of one of the user's processes, or "" if it
// is not known. Systems other than Linux and macOS return "".
func WorkingDir(pid int) string {
	if pid <= 0 {
		return ""
	}
	return workingDir(pid)
}

// Terminal returns the name of the terminal that controls one of the user's processes, as
// ps shows it, such as "pts/3". It returns "" if the process has none, or if it is not
// known.
func Terminal(pid int) string {
	if pid <= 0 {
		return ""
	}
	return terminal(pid)
}

// Within reports whether a process is another one or a descendant of it.
func Within(pid, ancestor int) bool {
	for range maxAncestors {
		if pid == ancestor {
			return pid > 0
		}
		p, err := Lookup(pid)
		if err != nil {
			return false
		}
		pid = p.Parent
	}
	return false
}

// maxAncestors is more than any process has.
const maxAncestors = 64

// Alive reports whether a process with that PID exists, whoever owns it.
func Alive(pid int) bool { return pid > 0 && alive(pid) }

// Ended reports whether no process with that PID runs. Unlike [Alive], it does not count
// a process that has ended and whose parent has not noticed; only Linux and macOS can tell.
func Ended(pid int) bool { return pid <= 0 || ended(pid) }

// Namespace returns a name for the set of processes and ports that this process
// can see. Each container has its own set, and so has the host. The name is empty on
// systems without namespaces.
func Namespace() string { return namespace() }

// Shared reports whether a directory may be shared with the host of this
// container or with another machine. PIDs and ports in its files may then mean
// nothing here.
func Shared(dir string) bool { return shared(dir) }

// Shell returns a command that runs the line in the system's shell.
func Shell(line string) *exec.Cmd { return shell(line) }

// Exec runs a program in place of this one, as the same process. In a [Child], the program
// ends with the parent, too. Exec returns only an error, on Windows [errors.ErrUnsupported].
func Exec(path string, argv, env []string) error { return execute(path, argv, env) }

// FreeSpace returns how many bytes the user may still write in dir.
func FreeSpace(dir string) (int64, error) { return freeSpace(dir) }

// Environs returns the distinct values that an environment variable had when the user's
// running processes started. macOS hides those of Apple's own programs. Systems other than
// Linux and macOS return none.
func Environs(key string) []string { return environs(key) }

// CommandLine returns the arguments of one of the user's processes, the program first, and
// its environment as KEY=VALUE, as they were when it started. Both are nil if they are not
// known. Systems other than Linux return nil.
func CommandLine(pid int) (args, env []string) { return commandLine(pid) }

// DiskPath returns the path of a file without symbolic links, as the disk spells it. For a
// file with several hard links it may be any of their paths. Systems other than macOS
// return [errors.ErrUnsupported].
func DiskPath(path string) (string, error) { return diskPath(path) }

// A StartedProcess is a process and the time of its start.
type StartedProcess struct {
	Process
	Started time.Time
}

// ProcessesIn returns the user's processes with that [Process.Name] whose working
// directory is dir or below it. Systems other than Linux and macOS return none.
func ProcessesIn(name, dir string) []StartedProcess { return processesIn(name, dir) }

// StateDir returns the directory for what must survive a restart (the journal):
// $XDG_STATE_HOME/pollux or ~/.local/state/pollux on Unix, the local application
// data on Windows. The directory may not exist.
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
			return "", fmt.Errorf("no directory for application data (%w): set %s or POLLUX_STATE_DIR", err, DataVar)
		}
		return filepath.Join(d, "pollux", "state"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory (%w): set HOME or POLLUX_STATE_DIR", err)
	}
	return filepath.Join(home, ".local", "state", "pollux"), nil
}

// RuntimeDir returns the directory of the companions' sockets:
// $XDG_RUNTIME_DIR/pollux, or pollux-UID in the temporary directory, or in /tmp if
// its path is too long for sockets there. On Windows a hash of the SID replaces the UID,
// since users can share that directory.
// RuntimeDir creates the directory and makes it private to the user. It fails if
// the directory belongs to another user. $POLLUX_RUNTIME_DIR replaces it, whatever its
// length.
func RuntimeDir() (string, error) {
	if dir := os.Getenv("POLLUX_RUNTIME_DIR"); dir != "" {
		return dir, PrivateTempDir(dir)
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) && usable(d) {
		if dir := filepath.Join(d, "pollux"); len(dir) <= maxRuntimeDir {
			return dir, PrivateTempDir(dir)
		}
	}
	id, err := userID()
	if err != nil {
		return "", fmt.Errorf("the user ID is unknown (%w): set POLLUX_RUNTIME_DIR", err)
	}
	dir := filepath.Join(os.TempDir(), "pollux-"+id)
	if len(dir) > maxRuntimeDir {
		dir = filepath.Join("/tmp", "pollux-"+id)
	}
	return dir, PrivateTempDir(dir)
}

// ShortTempDir creates a temporary directory like [MkdirTemp], in /tmp if the path of a
// socket would be too long in the temporary directory.
func ShortTempDir(prefix string) (string, error) {
	const digits = 10 // that os.MkdirTemp adds
	if len(os.TempDir())+1+len(prefix)+digits <= maxRuntimeDir {
		return MkdirTemp("", prefix)
	}
	return MkdirTemp("/tmp", prefix)
}

func usable(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && own(dir, info)
}

// Stamp returns what distinguishes two states of a file better than its size and
// modification time: the time of the last change of its content or properties,
// in nanoseconds, which no program can set back, and the number of the file. Both
// are zero on systems without them.
func Stamp(info fs.FileInfo) (changed int64, id uint64) { return stamp(info) }

// Memory returns the memory of one of the user's processes in bytes, or 0 if it is unknown:
// on Linux its anonymous memory, elsewhere its resident memory, which includes pages of files.
func Memory(pid int) int64 { return memory(pid) }
