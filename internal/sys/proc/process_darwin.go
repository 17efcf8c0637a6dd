package proc

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noDevice is NODEV of Apple's <sys/param.h>.
const noDevice = -1

// row returns a process's row in the process table.
func row(pid int) (*unix.KinfoProc, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return nil, fs.ErrNotExist // the result is empty
	}
	return k, nil
}

// rows returns the process table.
func rows() []unix.KinfoProc {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	return all
}

// ownRows returns the user's rows in the process table.
func ownRows() []unix.KinfoProc {
	return slices.DeleteFunc(rows(), func(k unix.KinfoProc) bool { return int(k.Eproc.Ucred.Uid) != os.Getuid() })
}

// arguments returns how a process was started. The kernel does not say it about a
// process of another user.
func arguments(pid int) procArgs {
	data, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return procArgs{}
	}
	p, _ := parseProcArgs(data)
	return p
}

func processOf(k *unix.KinfoProc) Process {
	pid := int(k.Proc.P_pid)
	return Process{PID: pid, Parent: int(k.Eproc.Ppid), Name: arguments(pid).name(cString(k.Proc.P_comm[:]))}
}

func lookup(pid int) (Process, error) {
	k, err := row(pid)
	if err != nil {
		return Process{}, err
	}
	return processOf(k), nil
}

func children(pid int) (pids []int) {
	for _, k := range rows() {
		if int(k.Eproc.Ppid) == pid {
			pids = append(pids, int(k.Proc.P_pid))
		}
	}
	return pids
}

func terminal(pid int) string {
	k, err := row(pid)
	if err != nil || k.Eproc.Tdev == noDevice {
		return ""
	}
	return deviceName("/dev", uint32(k.Eproc.Tdev))
}

func environs(key string) (values []string) {
	for _, k := range ownRows() {
		for _, kv := range arguments(int(k.Proc.P_pid)).environ {
			if v, ok := strings.CutPrefix(kv, key+"="); ok && v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return values
}

func processesIn(name, dir string) (all []StartedProcess) {
	for _, k := range ownRows() {
		p := processOf(&k)
		if p.Name != name {
			continue
		}
		if cwd := workingDir(p.PID); cwd == dir || strings.HasPrefix(cwd, strings.TrimSuffix(dir, "/")+"/") {
			all = append(all, StartedProcess{p, time.Unix(k.Proc.P_starttime.Unix())})
		}
	}
	return all
}

// Calls of the system call proc_info: see Apple's <sys/proc_info.h> and <libproc.h>.
const (
	procInfoPID   = 2 // PROC_INFO_CALL_PIDINFO, which proc_pidinfo makes
	procTaskInfo  = 4 // PROC_PIDTASKINFO
	procVnodePath = 9 // PROC_PIDVNODEPATHINFO
)

// procInfo returns the kernel's information about a process of this user. The result is
// shorter than size if the kernel returns nothing.
func procInfo(pid, flavor, size int) []byte {
	info := make([]byte, size)
	//lint:ignore SA1019 x/sys has no wrapper of proc_pidinfo
	n, _, errno := unix.Syscall6(unix.SYS_PROC_INFO, procInfoPID, uintptr(pid), uintptr(flavor), 0,
		uintptr(unsafe.Pointer(&info[0])), uintptr(size))
	if errno != 0 {
		return nil
	}
	return info[:min(int(n), size)]
}

func memory(pid int) int64 { return residentSize(procInfo(pid, procTaskInfo, taskInfoSize)) }

func workingDir(pid int) string {
	dir := filepath.Clean(currentDir(procInfo(pid, procVnodePath, vnodePathSize)))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || dir == "." {
		return "" // it was removed
	}
	return dir
}

// zombie is the state SZOMB of Apple's <sys/proc.h>: the process has ended, and its parent
// has not noticed.
const zombie = 5

func ended(pid int) bool {
	k, err := row(pid)
	if err != nil {
		return !alive(pid)
	}
	return k.Proc.P_stat == zombie
}

func commandLine(int) (args, env []string) { return nil, nil }
