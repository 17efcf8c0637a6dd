package sys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// TerminationSignals are the signals on which a process cleans up and ends.
var TerminationSignals = []os.Signal{os.Interrupt, windows.SIGTERM}

// Refused reports whether a dial failed because nobody listens.
func Refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// SurviveClosedPipes does nothing: a write to such a pipe fails on Windows.
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

// listenPrivate listens on a pipe that only the user can open.
func listenPrivate(name string) (l net.Listener, scheme, address string, err error) {
	pipe := fmt.Sprintf("%s%s-%d-%s", pipePrefix, name, os.Getpid(), rand.Text())
	l, err = listenPipe(pipe)
	return l, "pipe", pipe, err
}

// userID returns a part of a hash of the user's SID. The whole SID would make the
// path of a socket too long.
func userID() (string, error) {
	user, err := currentUser()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(user.String()))
	return hex.EncodeToString(sum[:6]), nil
}

func stamp(fs.FileInfo) (changed int64, id uint64) { return 0, 0 }

func tieToParent(*exec.Cmd) {}

// SignalTree kills a process. Children that it does not end itself stay.
func SignalTree(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// ExitCode returns a process's exit code.
func ExitCode(p *os.ProcessState) int { return p.ExitCode() }

// LeaveInterruptToChild makes this process ignore Ctrl-C while a child in the
// foreground handles it. It returns a function that ends this.
func LeaveInterruptToChild() (undo func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	return func() { signal.Stop(c) }
}

// leadGroup makes the child start suspended, so that it enters its job before it
// runs and everything it starts is in the job too.
func leadGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED
}

// A windowsProcess is in a job object together with its descendants. Closing the
// last handle of the job, ours, ends them. While the handles are open, the system
// does not reuse the PID.
type windowsProcess struct {
	cmd          *exec.Cmd
	job, process windows.Handle
}

func adopt(cmd *exec.Cmd) (_ process, err error) {
	p := &windowsProcess{cmd: cmd}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.job, err = windows.CreateJobObject(nil, nil); err != nil {
		return nil, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err = windows.SetInformationJobObject(p.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return nil, err
	}
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE | windows.SYNCHRONIZE
	if p.process, err = windows.OpenProcess(access, false, uint32(cmd.Process.Pid)); err != nil {
		return nil, err
	}
	if err = windows.AssignProcessToJobObject(p.job, p.process); err != nil {
		return nil, err
	}
	if err = resume(cmd.Process.Pid); err != nil {
		return nil, err
	}
	return p, nil
}

// resume runs a process that was started suspended. It has one thread.
func resume(pid int) error {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snap)
	e := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snap, &e); err == nil; err = windows.Thread32Next(snap, &e) {
		if e.OwnerProcessID != uint32(pid) {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, e.ThreadID)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(thread)
		_, err = windows.ResumeThread(thread)
		return err
	}
	return err
}

func (p *windowsProcess) wait() { windows.WaitForSingleObject(p.process, windows.INFINITE) }

// terminate sends Ctrl-Break, the only signal for a group on Windows.
func (p *windowsProcess) terminate() {
	windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.cmd.Process.Pid))
}

func (p *windowsProcess) kill() { windows.TerminateJobObject(p.job, 1) }

func (p *windowsProcess) reap() {
	p.close()
	p.cmd.Wait()
}

func (p *windowsProcess) close() {
	for _, h := range []windows.Handle{p.job, p.process} {
		if h != 0 {
			windows.CloseHandle(h)
		}
	}
}

func terminal(int) string { return "" }

func memory(int) int64 { return 0 }

func bound(*os.Root, string, fs.FileInfo) bool { return false }

func environs(string) []string { return nil }

func processesIn(string, string) []StartedProcess { return nil }

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

// shell passes the line on unchanged: cmd has different rules for quotes.
func shell(line string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /d /s /c "` + line + `"`}
	return cmd
}

func ended(pid int) bool { return !alive(pid) }
