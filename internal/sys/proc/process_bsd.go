//go:build unix && !linux

package proc

import (
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

func tieToParent(*exec.Cmd) {}

func tieThreadToParent() {}

func namespace() string { return "" }

// An exitWatch is a kqueue that reports the end of one process, or -1 if the
// process had already ended.
type exitWatch int

func watchExit(pid int) (exitWatch, error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return -1, fmt.Errorf("cannot watch a process: %w", err)
	}
	unix.CloseOnExec(queue)
	var exit unix.Kevent_t
	unix.SetKevent(&exit, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	exit.Fflags = unix.NOTE_EXIT
	if _, err = unix.Kevent(queue, []unix.Kevent_t{exit}, nil, nil); err == nil {
		return exitWatch(queue), nil
	}
	unix.Close(queue)
	if err == unix.ESRCH {
		return -1, nil
	}
	return -1, fmt.Errorf("cannot watch a process: %w", err)
}

// wait returns when the process has ended. It does not reap it.
func (queue exitWatch) wait() {
	if queue < 0 {
		return
	}
	defer unix.Close(int(queue))
	for {
		if _, err := unix.Kevent(int(queue), nil, make([]unix.Kevent_t, 1), nil); err != unix.EINTR {
			return
		}
	}
}

// getAttributes is the call that returns the attributes of a terminal.
const getAttributes = unix.TIOCGETA
