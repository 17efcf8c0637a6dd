package systest

import (
	"os"
	"syscall"
	"testing"
)

// The process has the user of its main thread. A test that changed the user of that
// thread made later tests wait forever for a process of their own user.
func TestAsUserKeepsTheProcess(t *testing.T) {
	for range 200 {
		if err := AsUser(t, 12345, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		t.Errorf("the process belongs to user %d now", uid)
	}
}
