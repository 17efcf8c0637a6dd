//go:build unix

package sys

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// TerminationSignals are the signals on which a process cleans up and ends.
var TerminationSignals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}

// Refused reports whether the error of a dial says that nobody listens.
func Refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// SurviveClosedPipes makes a write to a pipe that nobody reads an error, where
// it would end the process with all that it has to clean up.
func SurviveClosedPipes() {
	// Caught and dropped rather than ignored: an ignored signal is inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

func own(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

func sameOwner(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Uid == y.Uid
}

func administered(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}

// keepOwner gives f the owner and group of the file that it will replace.
func keepOwner(f *os.File, info fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, ok := info.Sys().(*syscall.Stat_t)
	is, ok2 := now.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}

// bound reports whether a file has something that a new file in its place
// would lose: further hard links or extended attributes.
func bound(root *os.Root, name string, info fs.FileInfo) bool {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return true
	}
	f, err := root.OpenFile(name, os.O_RDONLY|NonBlock, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return hasAttributes(f)
}

func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

func narrow(path string) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !own(info) || !info.IsDir() && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "chmod", Path: path, Err: fs.ErrPermission}
	}
	return f.Chmod(info.Mode().Perm() &^ 0o077)
}

func shell(line string) *exec.Cmd { return exec.Command("sh", "-c", line) }

// SignalTree signals a process and all below it, the leaves last: a launcher
// that ignores the signal does not shield its children.
func SignalTree(pid int, sig syscall.Signal) error {
	tree := []int{pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children(tree[i])...)
	}
	err := os.ErrProcessDone
	for _, p := range tree {
		if e := syscall.Kill(p, sig); e == nil {
			err = nil
		}
	}
	return err
}

// ExitCode is a process's exit code as a shell gives it: 128 and the signal's
// number for one that was killed.
func ExitCode(p *os.ProcessState) int {
	if st, ok := p.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal())
	}
	return p.ExitCode()
}

// LeaveInterruptToChild makes this process ignore the interrupt and quit keys
// of the terminal while a child in the foreground handles them, and returns a
// function that undoes it.
func LeaveInterruptToChild() (undo func()) {
	// Caught and dropped rather than ignored: an ignored signal is inherited.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGQUIT)
	return func() { signal.Stop(c) }
}

// A job is what holds a child's descendants together: here its process group.
type job struct{}

func leadGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func adopt(*os.Process) (job, error) { return job{}, nil }

func terminateTree(pid int, _ job) { signalAll(pid, syscall.SIGTERM) }

func killTree(pid int, _ job) { signalAll(pid, syscall.SIGKILL) }

// signalAll reaches the group, and those below the process that have left it.
func signalAll(pid int, sig syscall.Signal) {
	SignalTree(pid, sig)
	syscall.Kill(-pid, sig)
}

func endGroup(pid int, _ job) { syscall.Kill(-pid, syscall.SIGKILL) }
