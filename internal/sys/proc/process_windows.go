package proc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/windows"
)

// TerminationSignals are the signals on which a process cleans up and ends.
var TerminationSignals = []os.Signal{os.Interrupt, windows.SIGTERM}

// PrepareProcess makes the files of OneDrive and similar programs look like others. They are
// reparse points, which Go does not treat as regular files.
func PrepareProcess() {
	const disguise = 1 // PHCM_DISGUISE_PLACEHOLDER
	set := windows.NewLazySystemDLL("ntdll.dll").NewProc("RtlSetProcessPlaceholderCompatibilityMode")
	if set.Find() == nil { // since Windows 10 1803
		set.Call(disguise)
	}
}

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

func tieToParent(*exec.Cmd) {}

// ExitCode returns a process's exit code.
func ExitCode(p *os.ProcessState) int { return p.ExitCode() }

// LeaveInterruptToChild makes this process ignore Ctrl-C while a child in the
// foreground handles it. It returns a function that ends this.
func LeaveInterruptToChild() (undo func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	return func() { signal.Stop(c) }
}

func treeMemory(pid int) int64 { return memory(pid) }

func terminal(int) string { return "" }

func memory(pid int) int64 {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0
	}
	defer windows.CloseHandle(h)
	var counters struct { // PROCESS_MEMORY_COUNTERS
		size, pageFaultCount       uint32
		peakWorkingSet, workingSet uintptr
		pools                      [4]uintptr
		pageFile, peakPageFile     uintptr
	}
	counters.size = uint32(unsafe.Sizeof(counters))
	get := windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")
	if ok, _, _ := get.Call(uintptr(h), uintptr(unsafe.Pointer(&counters)), uintptr(counters.size)); ok == 0 {
		return 0
	}
	return int64(counters.workingSet)
}

func environs(string) []string { return nil }

func processesIn(string, string) []StartedProcess { return nil }

func execute(string, []string, []string) error { return errors.ErrUnsupported }

func namespace() string { return "" }

func ended(pid int) bool { return !alive(pid) }

func workingDir(int) string { return "" }

func commandLine(int) (args, env []string) { return nil, nil }

// ReadsKeys returns false: Windows has no tmux.
func ReadsKeys(string) bool { return false }
