package disk

import (
	"context"
	"time"
)

// lockDelay is the time between two attempts to lock a directory.
const lockDelay = 5 * time.Millisecond

// LockDir waits until no other process holds the lock of a directory, and holds it until
// unlock is called or this process ends. No file remains. If the context
// ends first, the error is its [context.Cause]. On Windows the lock is the file "lock", and an
// error after a few seconds says that it cannot be opened.
func LockDir(ctx context.Context, dir string) (unlock func(), err error) { return lockDir(ctx, dir) }
