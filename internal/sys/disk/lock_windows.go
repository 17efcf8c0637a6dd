package disk

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const errLocked = windows.ERROR_LOCK_VIOLATION

// lock locks a file. If wait is false, it fails with errLocked when another process holds
// the lock. It locks a byte behind the end, so that the file can be read.
func lock(f *os.File, wait bool) error {
	flags := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK)
	if !wait {
		flags |= windows.LOCKFILE_FAIL_IMMEDIATELY
	}
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
}

// openDirLock opens what [LockDir] locks.
func openDirLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: remove it, and check that you may write to its directory", err)
	}
	return f, nil
}

// closeDirLock also removes the file, which fails while another process has it open: that one
// removes it later.
func closeDirLock(f *os.File) {
	f.Close()
	os.Remove(f.Name())
}
