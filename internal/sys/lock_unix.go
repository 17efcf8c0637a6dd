//go:build unix

package sys

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a file, or fails at once where wait is false.
func lock(f *os.File, wait bool) error {
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
