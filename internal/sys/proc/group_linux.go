package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Group is the process group of a process that runs a command with [RunForeground].
type Group struct{ id int }

// GroupOf returns the process group of a running process.
func GroupOf(pid int) Group {
	id, err := unix.Getpgid(pid)
	if err != nil {
		return Group{}
	}
	return Group{id}
}

// signal signals the processes that [Group.End] is for, each once. It reports whether there are
// any.
func (g Group) signal(variable string, sig syscall.Signal, asked map[int]bool) (found bool) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || GroupOf(pid) != g {
			continue
		}
		p, err := os.FindProcess(pid) // before the checks: see SignalTree
		if err != nil {
			continue
		}
		if g.left(pid, variable) {
			found = true
			if !asked[pid] {
				p.Signal(sig)
			}
			asked[pid] = true
		}
		p.Release()
	}
	return found
}

// left reports whether a process of the group has the variable and has lost its parent.
func (g Group) left(pid int, variable string) bool {
	_, env := commandLine(pid)
	found, err := lookup(pid)
	return err == nil && GroupOf(pid) == g && GroupOf(found.Parent) != g && slices.Contains(env, variable) && !ended(pid)
}
