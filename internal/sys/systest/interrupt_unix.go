//go:build unix

package systest

import (
	"os/exec"
	"syscall"
)

// OwnConsole does nothing: see [Interrupt].
func OwnConsole(*exec.Cmd) {}

// Interrupt does to a process what Ctrl-C does. On Windows the process was started with
// [OwnConsole], and the caller's process loses its own console.
func Interrupt(pid int) error { return syscall.Kill(pid, syscall.SIGINT) }
