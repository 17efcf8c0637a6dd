package sys

import (
	"context"
	"os/exec"
	"time"
)

// Detach makes a command that is not started yet outlive this process and its terminal.
func Detach(cmd *exec.Cmd) { detach(cmd) }

// lockDelay is the time between two attempts to lock a directory.
const lockDelay = 5 * time.Millisecond

// LockDir waits until no other process holds the lock of a directory, and holds it until
// unlock is called or this process ends. No file remains. If the context
// ends first, the error is its [context.Cause].
func LockDir(ctx context.Context, dir string) (unlock func(), err error) { return lockDir(ctx, dir) }
