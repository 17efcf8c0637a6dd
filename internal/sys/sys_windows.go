package sys

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// TerminationSignals are the signals on which a process cleans up and ends.
var TerminationSignals = []os.Signal{os.Interrupt, windows.SIGTERM}

// Refused reports whether the error of a dial says that nobody listens.
func Refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// SurviveClosedPipes does nothing: writes to such a pipe are errors here.
func SurviveClosedPipes() {}

func alive(pid int) bool {
	const stillActive = 259
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return err == windows.ERROR_ACCESS_DENIED
	}
	defer windows.CloseHandle(h)
	var code uint32
	return windows.GetExitCodeProcess(h, &code) == nil && code == stillActive
}

func lookup(pid int) (Process, error) {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return Process{}, err
	}
	defer windows.CloseHandle(snap)
	e := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snap, &e); err == nil; err = windows.Process32Next(snap, &e) {
		if int(e.ProcessID) == pid {
			return Process{PID: pid, Parent: int(e.ParentProcessID), Name: windows.UTF16ToString(e.ExeFile[:])}, nil
		}
	}
	return Process{}, fs.ErrNotExist
}

func own(fs.FileInfo) bool { return true }

func tieToParent(*exec.Cmd) {}

// SignalTree ends a process; children that it does not end itself stay.
func SignalTree(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// ExitCode is a process's exit code.
func ExitCode(p *os.ProcessState) int { return p.ExitCode() }

// LeaveInterruptToChild makes this process ignore Ctrl-C while a child in the
// foreground handles it, and returns a function that undoes it.
func LeaveInterruptToChild() (undo func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	return func() { signal.Stop(c) }
}
