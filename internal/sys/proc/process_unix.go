//go:build unix

package proc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// TerminationSignals are the signals on which a process cleans up and ends.
var TerminationSignals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}

// PrepareProcess makes a write to a pipe without a reader return an error, instead
// of ending the process before it can clean up.
func PrepareProcess() {
	// Catch and drop the signal: children would inherit an ignored one.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// deviceName returns the name of the device with that number in a directory, or "".
func deviceName(dir string, number uint32) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && uint32(st.Rdev) == number {
			return e.Name()
		}
	}
	return ""
}

func elevated() bool { return false }

func execute(path string, argv, env []string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tieThreadToParent()
	if err := syscall.Exec(path, argv, env); err != nil {
		return &fs.PathError{Op: "exec", Path: path, Err: err}
	}
	return nil
}

// SignalTree signals a child process and its descendants, the leaves last, so
// that a launcher which ignores the signal does not protect its children. If the
// PID is not that of a child, SignalTree fails and signals nothing.
//
// A child keeps its PID until this process reaps it. Its descendants are not our
// children, so SignalTree opens each one (see [os.FindProcess]) and then checks its
// parent. Linux signals exactly the opened process. On other systems, if a
// process ends between the check and the signal, the signal can reach a new one
// with the same PID.
func SignalTree(pid int, sig syscall.Signal) error {
	top := hold(pid, os.Getpid())
	if top == nil {
		return os.ErrProcessDone
	}
	tree := []*os.Process{top}
	for i := 0; i < len(tree); i++ {
		defer tree[i].Release()
		for _, child := range children(tree[i].Pid) {
			if p := hold(child, tree[i].Pid); p != nil {
				tree = append(tree, p)
			}
		}
	}
	err := os.ErrProcessDone
	for _, p := range tree {
		if p.Signal(sig) == nil {
			err = nil
		}
	}
	return err
}

// hold returns the process if it is a child of parent, nil otherwise.
func hold(pid, parent int) *os.Process {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	if found, err := lookup(pid); err != nil || found.Parent != parent {
		p.Release()
		return nil
	}
	return p
}

func treeMemory(pid int) int64 {
	sum := memory(pid)
	if sum == 0 { // unknown: do not look for the children
		return 0
	}
	for _, child := range children(pid) {
		sum += treeMemory(child)
	}
	return sum
}

// ExitCode returns a process's exit code as a shell reports it: 128 plus the
// number of the signal for a process that a signal ended.
func ExitCode(p *os.ProcessState) int {
	if st, ok := p.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return p.ExitCode()
}

// LeaveInterruptToChild makes this process ignore the interrupt and quit keys of
// the terminal while a child in the foreground handles them. It returns a
// function that ends this.
func LeaveInterruptToChild() (undo func()) {
	// Catch and drop the signal: children would inherit an ignored one.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGQUIT)
	return func() { signal.Stop(c) }
}

func leadGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func hideConsole(*exec.Cmd) {}

func canAskToEnd() bool { return true }

// A unixProcess is a child. All its methods but wait need a process that is not reaped.
type unixProcess struct {
	cmd   *exec.Cmd
	leads bool // a process group
	exitWatch
}

func startLeader(cmd *exec.Cmd) (process, error) { return start(cmd, true) }

func startForeground(cmd *exec.Cmd) (process, error) { return start(cmd, false) }

func start(cmd *exec.Cmd, leads bool) (process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w, err := watchExit(cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	return &unixProcess{cmd, leads, w}, nil
}

func (p *unixProcess) terminate() { p.signal(syscall.SIGTERM) }

func (p *unixProcess) kill() { p.signal(syscall.SIGKILL) }

// signal signals the group, and the descendants that have left it.
func (p *unixProcess) signal(sig syscall.Signal) {
	SignalTree(p.cmd.Process.Pid, sig)
	p.signalGroup(sig)
}

func (p *unixProcess) signalGroup(sig syscall.Signal) {
	if p.leads {
		syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

func (p *unixProcess) reap() error {
	p.signalGroup(syscall.SIGKILL)
	return p.cmd.Wait()
}

// ReadsKeys reports whether a program reads single keys from a terminal. Otherwise the
// terminal keeps what is typed until the end of the line. It returns false if that is not
// known, and for what is not a terminal.
func ReadsKeys(device string) bool {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	attributes, err := unix.IoctlGetTermios(fd, getAttributes)
	return err == nil && attributes.Lflag&unix.ICANON == 0
}
