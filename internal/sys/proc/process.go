// Package proc starts child processes and ends them with their descendants, and looks up
// running ones.
package proc

import (
	"io/fs"
	"time"
)

// A Process is a row in the process table.
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

// WorkingDir returns the working directory of a process that belongs to the user, or "" if it
// is not known. Systems other than Linux and macOS return "".
func WorkingDir(pid int) string {
	if pid <= 0 {
		return ""
	}
	return workingDir(pid)
}

// Terminal returns the name of the terminal that controls a process of this user, as ps
// shows it, such as "pts/3". It returns "" if the process has none, or if it is not
// known.
func Terminal(pid int) string {
	if pid <= 0 {
		return ""
	}
	return terminal(pid)
}

// Within reports whether a process is another one or a descendant of it. It examines at most
// that many processes.
func Within(pid, ancestor, most int) bool {
	for range most {
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

// AllAncestors is more than any process has.
const AllAncestors = 64

// Alive reports whether a process with that PID exists, of any user.
func Alive(pid int) bool { return pid > 0 && alive(pid) }

// Ended reports whether no process with that PID runs. Unlike [Alive], it does not count
// a process that has ended and whose parent has not noticed; only Linux and macOS can tell.
func Ended(pid int) bool { return pid <= 0 || ended(pid) }

// InUse returns a function that reports whether a running process uses the file with a name.
// pid returns the PID in the name. If it is 0, the function reports true.
func InUse(pid func(name string) int) func(name string) bool {
	return func(name string) bool {
		n := pid(name)
		return n <= 0 || Alive(n)
	}
}

// Namespace returns a name for the set of processes and ports that this process
// can see. Each container has its own set, and so has the host. The name is empty on
// systems without namespaces.
func Namespace() string { return namespace() }

// Exec runs a program in place of this one, as the same process. In a [Child], the program
// ends with the parent, too. Exec returns only an error, on Windows [errors.ErrUnsupported].
func Exec(path string, argv, env []string) error { return execute(path, argv, env) }

// Environs returns the distinct values that an environment variable had when the user's
// running processes started. macOS hides those of Apple's own programs. Systems other than
// Linux and macOS return none.
func Environs(key string) []string { return environs(key) }

// CommandLine returns the arguments of a process of this user, the program first, and
// its environment as KEY=VALUE, as they were when it started. Both are nil if they are not
// known. Systems other than Linux return nil.
func CommandLine(pid int) (args, env []string) { return commandLine(pid) }

// A StartedProcess is a process and the time of its start.
type StartedProcess struct {
	Process
	Started time.Time
}

// ProcessesIn returns the user's processes with that [Process.Name] whose working
// directory is dir or below it. Systems other than Linux and macOS return none.
func ProcessesIn(name, dir string) []StartedProcess { return processesIn(name, dir) }

// Memory returns the memory of a process of this user in bytes, or 0 if it is unknown:
// on Linux its anonymous memory, elsewhere its resident memory, which includes pages of files.
func Memory(pid int) int64 { return memory(pid) }

// TreeMemory is [Memory] of a process and of its descendants. On Windows it leaves the descendants
// out.
func TreeMemory(pid int) int64 { return treeMemory(pid) }

// Elevated reports whether this process has raised rights that the user's other processes
// do not have, as after "Run as administrator" on Windows. On other systems it returns false:
// there, such a process runs as root.
func Elevated() bool { return elevated() }
