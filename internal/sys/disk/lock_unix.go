//go:build unix

package disk

import (
	"errors"
	"os"
	"syscall"
)

const errLocked = syscall.EWOULDBLOCK

// lock locks a file. If wait is false, it fails with errLocked when another process holds
// the lock.
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

// openDirLock opens what [LockDir] locks.
func openDirLock(dir string) (*os.File, error) { return os.Open(dir) }

func closeDirLock(f *os.File) { f.Close() }
