package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The memory of a process is the system's figure.
func TestMemory(t *testing.T) {
	needs(t, "smaps_rollup")
	self := []int{os.Getpid()}
	const size = 64 // MB
	big := slices.Repeat([]byte{1}, size<<20)
	private, err := memoryOf(self, anonymous)
	if err != nil || private < size {
		t.Errorf("got %v MB, %v", private, err)
	}
	if pss, err := memoryOf(self, proportional); err != nil || pss < private {
		t.Errorf("got %v MB with the files, %v MB without, %v", pss, private, err)
	}
	runtime.KeepAlive(big)
	if seconds, err := cpuOf(self); err != nil || seconds < 0 {
		t.Errorf("got %v s, %v", seconds, err)
	}
}

// needs skips a test if the system lacks a file of its processes.
func needs(t *testing.T, file string) {
	t.Helper()
	if _, err := os.Stat("/proc/self/" + file); err != nil {
		t.Skipf("this system does not tell: %v", err)
	}
}

// A family is a process and its descendants.
func TestFamily(t *testing.T) {
	needs(t, fmt.Sprintf("task/%d/children", os.Getpid()))
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	if all := family(os.Getpid()); !slices.Contains(all, child.Process.Pid) || all[0] != os.Getpid() {
		t.Errorf("got %v", all)
	}
}

// A peer that cannot be measured is an error that names the next step.
func TestPeerErrors(t *testing.T) {
	for command, want := range map[string]string{
		"/does/not/exist":     "check the command",
		"false":               "false ended with code 1 before it published a discovery file",
		"cat /does/not/exist": "No such file",
	} {
		_, err := startCompanion(strings.Fields(command), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", command, err)
		}
	}
}
