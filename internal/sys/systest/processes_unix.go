//go:build unix

package systest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Children returns the child processes of a process. It needs /proc.
func Children(pid int) (children []int, err error) {
	lists, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		data, _ := os.ReadFile(list) // the thread may have ended
		for f := range strings.FieldsSeq(string(data)) {
			child, _ := strconv.Atoi(f)
			children = append(children, child)
		}
	}
	return children, err
}

// KillGroup kills the process group that a process leads.
func KillGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// Suspend stops a process until [Resume].
func Suspend(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

// Resume continues a suspended process.
func Resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
