package proc

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"pollux/internal/sys/systest"
)

// What has a name with the PID of a running process, or with none, is in use.
func TestInUse(t *testing.T) {
	const dead = "1073741824"
	used := InUse(func(name string) int {
		pid, _ := strconv.Atoi(name)
		return pid
	})
	for name, want := range map[string]bool{strconv.Itoa(os.Getpid()): true, "x": true, dead: false} {
		if got := used(name); got != want {
			t.Errorf("%s is in use: %v", name, got)
		}
	}
}

func TestUnknownProcesses(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 30} {
		if dir := WorkingDir(pid); dir != "" {
			t.Errorf("process %d is in %q", pid, dir)
		}
		if Within(pid, os.Getpid(), AllAncestors) {
			t.Errorf("process %d is below this one", pid)
		}
	}
}

// A process that has ended, but whose parent does not notice, exists and does not run.
func TestEnded(t *testing.T) {
	cmd := exec.Command(systest.Self(t), "-test.run=^$")
	_, out := systest.Start(t, cmd)
	pid := cmd.Process.Pid
	if Ended(os.Getpid()) || !Ended(0) {
		t.Error("this process has ended, or process 0 has not")
	}
	io.Copy(io.Discard, out)
	for runtime.GOOS != "windows" && !Ended(pid) {
		runtime.Gosched()
	}
	if runtime.GOOS != "windows" && !Alive(pid) { // it has no such processes
		t.Error("the process no longer exists")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !Ended(pid) {
		t.Error("the process still runs")
	}
}

func TestMemoryOfProcess(t *testing.T) {
	if got := Memory(os.Getpid()); got < 1<<20 || got > 1<<40 {
		t.Errorf("this process has %d bytes", got)
	}
	if got := Memory(1 << 30); got != 0 {
		t.Errorf("a process that does not exist has %d bytes", got)
	}
}
