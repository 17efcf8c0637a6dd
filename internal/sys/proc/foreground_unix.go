//go:build unix

package proc

import (
	"os/exec"
	"syscall"
)

// A foregroundTree is a command in the foreground and what it starts.
type foregroundTree struct{ cmd *exec.Cmd }

func startForeground(cmd *exec.Cmd) (foregroundTree, error) {
	tieToParent(cmd)
	return foregroundTree{cmd}, cmd.Start()
}

func (t foregroundTree) terminate() { SignalTree(t.cmd.Process.Pid, syscall.SIGTERM) }

func (t foregroundTree) kill() { SignalTree(t.cmd.Process.Pid, syscall.SIGKILL) }

func (foregroundTree) release() {}
