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

// Variables to set, as messages name them: TempVars for the temporary directory, HomeVar for
// the home directory, and DataVar for the base of [StateDir].
const (
	TempVars = "TEMP and TMP" // Node.js reads TEMP first, Go reads TMP
	HomeVar  = "USERPROFILE"
	DataVar  = "LOCALAPPDATA"
)

// makeWritable is the command that makes a read-only file writable.
const makeWritable = "attrib -r"

// Refused reports whether a dial failed because nobody listens.
func Refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// PrepareProcess makes the files of OneDrive and similar programs look like others. They are
// reparse points, which Go takes to be something else than files.
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

func ownedBy(fs.FileInfo, int) bool { return false }

func stamp(fs.FileInfo) (changed int64, id uint64) { return 0, 0 }

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

// bound reports whether a new file in its place would lose something: further hard links,
// encryption, or data streams.
func bound(root *os.Root, name string, _ fs.FileInfo) bool {
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	h := windows.Handle(f.Fd())
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return false
	}
	return info.NumberOfLinks > 1 || info.FileAttributes&windows.FILE_ATTRIBUTE_ENCRYPTED != 0 || hasStreams(h)
}

// fileStreamInformation is the class of information that lists a file's data streams.
const fileStreamInformation = 22

// hasStreams reports whether the file has data streams in addition to its content.
func hasStreams(h windows.Handle) bool {
	// A FILE_STREAM_INFORMATION for each stream. The first is for the content, and says in
	// its first field whether another follows.
	var list [64]uint32
	var status windows.IO_STATUS_BLOCK
	err := windows.NtQueryInformationFile(h, &status, (*byte)(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), fileStreamInformation)
	return errors.Is(err, windows.STATUS_BUFFER_OVERFLOW) || err == nil && list[0] != 0
}

// inUse reports whether an error may mean that another program keeps the file open.
func inUse(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

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

func execute(string, []string, []string) error { return errors.ErrUnsupported }

func namespace() string { return "" }

func shared(string) bool { return false }

// shell passes the line on unchanged: cmd has different rules for quotes.
func shell(line string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /d /s /c "` + line + `"`}
	return cmd
}

func ended(pid int) bool { return !alive(pid) }

func workingDir(int) string { return "" }

func commandLine(int) (args, env []string) { return nil, nil }

// ReadsKeys returns false: there is no tmux for Windows.
func ReadsKeys(string) bool { return false }
