//go:build unix && !linux && !darwin

package proc

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func lookup(pid int) (Process, error) {
	out, err := exec.Command("ps", "-o", "ppid=,command=", "-p", strconv.Itoa(pid)).Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 {
		return Process{}, fs.ErrNotExist
	}
	parent, err := strconv.Atoi(fields[0])
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Parent: parent, Name: filepath.Base(fields[1])}, nil
}

func children(pid int) (pids []int) {
	out, _ := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	for f := range strings.FieldsSeq(string(out)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

func terminal(pid int) string {
	out, _ := exec.Command("ps", "-o", "tty=", "-p", strconv.Itoa(pid)).Output()
	return strings.Trim(strings.TrimSpace(string(out)), "?-")
}

func memory(int) int64 { return 0 }

func workingDir(int) string { return "" }

func environs(string) []string { return nil }

func processesIn(string, string) []StartedProcess { return nil }

func ended(pid int) bool { return !alive(pid) }

func commandLine(int) (args, env []string) { return nil, nil }
