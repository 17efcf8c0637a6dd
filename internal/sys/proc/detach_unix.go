//go:build unix

package proc

import (
	"os/exec"
	"syscall"
)

// Detach makes a command independent of this process's terminal and session.
func Detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func startDetached(cmd *exec.Cmd) (*exec.Cmd, error) {
	Detach(cmd)
	return cmd, cmd.Start()
}
