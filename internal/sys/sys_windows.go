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

func stamp(fs.FileInfo) (changed int64, id uint64) { return 0, 0 }

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

// A job is what holds a child's descendants together: a job object that ends
// them when its last handle is closed, ours.
type job windows.Handle

func leadGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP
}

func adopt(p *os.Process) (job, error) {
	h, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(h, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		var child windows.Handle
		child, err = windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(p.Pid))
		if err == nil {
			err = windows.AssignProcessToJobObject(h, child)
			windows.CloseHandle(child)
		}
	}
	if err != nil {
		windows.CloseHandle(h)
		return 0, err
	}
	return job(h), nil
}

// terminateTree asks by Ctrl-Break, the one signal that a group gets here.
func terminateTree(pid int, _ job) {
	windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(pid))
}

func killTree(_ int, j job) { windows.TerminateJobObject(windows.Handle(j), 1) }

func endGroup(_ int, j job) {
	if j != 0 {
		windows.CloseHandle(windows.Handle(j))
	}
}

func memory(int) int64 { return 0 }

func keepOwner(*os.File, fs.FileInfo) error { return nil }

func bound(*os.Root, string, fs.FileInfo) bool { return false }

func sameOwner(a, b fs.FileInfo) bool { return true }

func administered(fs.FileInfo) bool { return true }

func environs(string) []string { return nil }

func freeSpace(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return int64(free), nil
}

func namespace() string { return "" }

func shared(string) bool { return false }

func narrow(string) error { return nil }

// shell hands the line over as it is: cmd has rules of its own for quotes.
func shell(line string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /d /s /c "` + line + `"`}
	return cmd
}
