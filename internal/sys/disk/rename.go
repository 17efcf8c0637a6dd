package disk

import (
	"context"
	"time"
)

// maxRenameDelay limits the delay after a rename that failed.
const maxRenameDelay = 100 * time.Millisecond

// renameTimeout limits how long a rename waits for other programs.
const renameTimeout = time.Second

// rename is [RetryRename] for a file, and also for its removal. It waits no longer than [renameTimeout].
func rename(do, check func() error) error {
	return RetryRename(context.Background(), renameTimeout, do, check)
}

// RetryRename calls do, which renames a file or a directory. Windows refuses that while
// another program, such as a virus scanner, keeps the file or one below the directory open.
// Then RetryRename calls do again, until the timeout. Before each further call it calls
// check, and returns the error of that. If the context ends while it waits, the error is
// its [context.Cause].
func RetryRename(ctx context.Context, timeout time.Duration, do, check func() error) error {
	return retryIf(ctx, inUse, timeout, do, check)
}

func retryIf(ctx context.Context, inUse func(error) bool, timeout time.Duration, do, check func() error) error {
	delay := time.Millisecond
	for start := time.Now(); ; delay = min(2*delay, maxRenameDelay) {
		err := do()
		if err == nil || !inUse(err) || time.Since(start) >= timeout {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
		if err := check(); err != nil {
			return err
		}
	}
}
