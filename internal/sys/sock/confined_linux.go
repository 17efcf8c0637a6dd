package sock

import (
	"bytes"
	"fmt"
	"os"
)

// confined reports whether a process has given up for good the right to gain privileges, as all
// programs behind a wall of the kernel have, and this process has not. It reports true for a
// process about which it can learn nothing. On other systems than Linux it reports false.
func confined(pid int) bool {
	ours, err := noNewPrivileges(os.Getpid())
	if err != nil || ours {
		return false
	}
	theirs, err := noNewPrivileges(pid)
	return err != nil || theirs
}

func noNewPrivileges(pid int) (bool, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n")), err
}
