package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"pollux/internal/realagents"
	"pollux/internal/sys/systest"
)

// isolatedEnv is set in the test process that runs in a network namespace.
const isolatedEnv = "POLLUX_E2E_ISOLATED"

// isolatedSlots bounds the processes of [isolated], whose agents compute much and need much memory.
var isolatedSlots = make(chan struct{}, 4)

// isolated reports whether the test runs in a network namespace that has only
// loopback: closed clients try to reach other hosts, even when told not to. If it does
// not, isolated runs the test again in a process that does, and reports false.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedEnv) == "" {
		t.Parallel()
		isolatedSlots <- struct{}{}
		defer func() { <-isolatedSlots }()
	}
	return isolatedAlone(t)
}

// isolatedAlone is isolated for a test that needs the whole machine: no other runs meanwhile.
func isolatedAlone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedEnv) != "" {
		return true
	}
	self := systest.Self(t)
	argv, err := realagents.Offline(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=45m",
		fmt.Sprintf("-test.short=%v", testing.Short()), "-screenshots="+*screenshots)
	if err != nil {
		if os.Getenv("POLLUX_E2E") == "require" && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Skipf("without root or unshare -rn: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), isolatedEnv+"=1", "POLLUX_BINARY="+polluxBinary)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in a network namespace: %v\n%s", err, out)
	}
	return false
}
