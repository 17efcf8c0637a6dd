package systest

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Children returns the child processes of a process.
func Children(pid int) (children []int, err error) {
	snap, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(snap)
	start := started(pid)
	entry := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snap, &entry); err == nil; err = windows.Process32Next(snap, &entry) {
		// Another process may have had the PID, and the child may be older.
		if int(entry.ParentProcessID) == pid && started(int(entry.ProcessID)) >= start {
			children = append(children, int(entry.ProcessID))
		}
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return nil, err
	}
	return children, nil
}

// started returns when a process started, in nanoseconds since 1970, or 0 if it has ended.
func started(pid int) int64 {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(h, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	return created.Nanoseconds()
}

// KillGroup kills a process. Windows has no process groups in this sense.
func KillGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Suspend stops a process until [Resume].
func Suspend(pid int) error { return call("NtSuspendProcess", pid) }

// Resume continues a suspended process.
func Resume(pid int) error { return call("NtResumeProcess", pid) }

func call(function string, pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_SUSPEND_RESUME, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	if status, _, _ := windows.NewLazySystemDLL("ntdll.dll").NewProc(function).Call(uintptr(h)); status != 0 {
		return windows.NTStatus(status)
	}
	return nil
}
