package proc

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pollux/internal/sys/disk"

	"golang.org/x/sys/unix"
)

func lookup(pid int) (Process, error) {
	name, fields := stat(pid)
	if len(fields) < 2 {
		return Process{}, fs.ErrNotExist
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, err
	}
	if argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(argv) > 0 {
		// ps joins the arguments with spaces, and readers split at the first space.
		first, _, _ := strings.Cut(strings.ReplaceAll(string(argv), "\x00", " "), " ")
		name = filepath.Base(first)
	}
	return Process{PID: pid, Parent: parent, Name: name}, nil
}

func memory(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(fields[1], 10, 64)
	files, _ := strconv.ParseInt(fields[2], 10, 64) // their resident pages, and shared memory
	return (resident - files) * int64(os.Getpagesize())
}

func children(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		data, _ := os.ReadFile(t)
		for f := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func namespace() string {
	pid, _ := os.Readlink("/proc/self/ns/pid")
	net, _ := os.Readlink("/proc/self/ns/net")
	return strings.TrimSpace(pid + " " + net)
}

func environs(key string) (values []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if info, err := os.Stat(filepath.Dir(f)); err != nil || !disk.Own(filepath.Dir(f), info) {
			continue
		}
		data, _ := os.ReadFile(f)
		for kv := range strings.SplitSeq(string(data), "\x00") {
			if v, ok := strings.CutPrefix(kv, key+"="); ok && v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return values
}

func commandLine(pid int) (args, env []string) {
	dir := "/proc/" + strconv.Itoa(pid)
	if info, err := os.Stat(dir); pid <= 0 || err != nil || !disk.Own(dir, info) {
		return nil, nil
	}
	read := func(name string) []string {
		data, err := os.ReadFile(dir + name)
		if err != nil || len(data) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	}
	return read("/cmdline"), read("/environ")
}

func processesIn(name, dir string) (all []StartedProcess) {
	boot := bootTime()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		p, err := lookup(pid)
		cwd, cwdErr := os.Readlink(d + "/cwd")
		info, statErr := os.Stat(d)
		if err != nil || cwdErr != nil || statErr != nil || p.Name != name || !disk.Own(d, info) ||
			cwd != dir && !strings.HasPrefix(cwd, strings.TrimSuffix(dir, "/")+"/") {
			continue
		}
		if ticks, err := startTicks(pid); err == nil {
			all = append(all, StartedProcess{p, boot.Add(time.Duration(ticks) * time.Second / clockTicks)})
		}
	}
	return all
}

// stat returns the name of a process in /proc/PID/stat, and the fields after it, which
// begin with the third one, the state. There are none if the process does not exist.
func stat(pid int) (name string, fields []string) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, text, _ := strings.Cut(string(data), "(")
	end := strings.LastIndexByte(text, ')') // the name may hold spaces and parentheses
	return text[:max(end, 0)], strings.Fields(text[end+1:])
}

// terminal returns the name of the terminal that controls a process.
func terminal(pid int) string {
	_, fields := stat(pid)
	if len(fields) < 5 {
		return ""
	}
	number, err := strconv.Atoi(fields[4]) // the 7th field
	if err != nil {
		return ""
	}
	return terminalName(uint64(uint32(number)))
}

// The kernel's numbers of terminals: see its admin-guide/devices.txt.
const (
	consoleMajor = 4
	ptyMajor     = 136
	firstSerial  = 64
)

// terminalName returns the name of a terminal with the number of a device, or "".
func terminalName(device uint64) string {
	major, minor := unix.Major(device), unix.Minor(device)
	switch {
	case major == ptyMajor:
		return fmt.Sprintf("pts/%d", minor)
	case major == consoleMajor && minor < firstSerial:
		return fmt.Sprintf("tty%d", minor)
	case major == consoleMajor:
		return fmt.Sprintf("ttyS%d", minor-firstSerial)
	}
	return ""
}

func ended(pid int) bool {
	_, fields := stat(pid)
	if len(fields) == 0 {
		return !alive(pid)
	}
	return fields[0] == "Z" || fields[0] == "X"
}

// clockTicks is how many ticks of /proc/PID/stat a second has, on every architecture
// that Go supports.
const clockTicks = 100

// startTicks returns when a process started, in ticks since the boot.
func startTicks(pid int) (int64, error) {
	_, fields := stat(pid)
	if len(fields) < 20 {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseInt(fields[19], 10, 64) // the 22nd field
}

// bootTime returns when the system started.
func bootTime() time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(now.Nano()))
}

func tieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// tieThreadToParent does for this thread what tieToParent did for the first one of this
// process. The parent-death signal belongs to a thread, and a thread that executes another
// program becomes the process.
func tieThreadToParent() { unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0) }

// An exitWatch is the PID of a process to wait for.
type exitWatch int

func watchExit(pid int) (exitWatch, error) { return exitWatch(pid), nil }

// wait returns when the process has ended. It does not reap it.
func (pid exitWatch) wait() {
	for unix.Waitid(unix.P_PID, int(pid), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// getAttributes is the call that returns the attributes of a terminal.
const getAttributes = unix.TCGETS

func workingDir(pid int) string {
	dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	if err != nil || !filepath.IsAbs(dir) {
		return ""
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "" // it was removed: the kernel adds " (deleted)"
	}
	return dir
}
