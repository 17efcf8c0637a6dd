package disk

import (
	"context"
	"errors"
	"time"
)

// lockDelay is the time between two attempts to lock a directory.
const lockDelay = 5 * time.Millisecond

// LockDir waits until no other process holds the lock of a directory, and holds it until
// unlock is called or this process ends. If the context ends first, the error is its
// [context.Cause]. No file remains. On Windows the lock is the file "lock" in the directory,
// which remains if the process was killed.
func LockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := openDirLock(dir)
	if err != nil {
		return nil, err
	}
	for {
		switch err := lock(f, false); {
		case err == nil:
			return func() { closeDirLock(f) }, nil
		case !errors.Is(err, errLocked):
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(lockDelay):
		}
	}
}
