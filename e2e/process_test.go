package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pollux/editors/editortest"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

var signals = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP, "SIGKILL": syscall.SIGKILL}

// succeed runs a command to its end, which must be a success, and returns what it printed.
func succeed(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func send(t *testing.T, pid int, signal os.Signal) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Signal(signal)
	}
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
}

// suspend stops a process, which may have ended, until resume is called or the test ends.
func suspend(t *testing.T, pid int) (resume func()) {
	t.Helper()
	if err := systest.Suspend(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("process %d: %v", pid, err)
	}
	resume = sync.OnceFunc(func() { systest.Resume(pid) })
	t.Cleanup(resume)
	return resume
}

// kill kills a process that may have ended.
func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

// endCLIs kills the agents among the processes. An agent that has lost its terminal
// exits a moment later and writes to its home, which the test is about to remove.
func endCLIs(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		program, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
		isAgent := func(name string) bool { return strings.HasPrefix(filepath.Base(program), name) }
		if slices.ContainsFunc([]string{"node", "claude", "copilot", "codex", "opencode"}, isAgent) {
			kill(pid)
			waitEnded(t, pid)
		}
	}
}

// children returns the descendants of pid.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	below, err := systest.Children(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range below {
		all = append(append(all, child), children(t, child)...)
	}
	return all
}

// waitGone waits until processes that are not our children have exited, and their parents know.
func waitGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		waitFor(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !proc.Alive(pid) })
	}
}

// waitEnded waits until processes have exited whose parents are gone. Process 1 may notice that
// a second later.
func waitEnded(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		waitFor(t, fmt.Sprintf("the end of process %d", pid), func() bool { return proc.Ended(pid) })
	}
}

// waitFor waits until a condition is true.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(editortest.PollInterval(start)) {
		if time.Since(start) > stepTimeout {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
