package proc

import (
	"context"
	"os/exec"
	"runtime"
	"time"
)

// RunForeground runs a command and waits for it, as [exec.Cmd.Run] does. The command must
// not have a context, and on Windows its standard streams must be files (or nil). It
// stays in the process group of this process, so that the keys of a terminal reach both,
// and ends when this process ends for any reason: with a parent-death signal on Linux, with
// a job object on Windows, where everything that it has started ends too.
//
// When ctx ends, RunForeground asks the command and its descendants to end, and kills
// them after the grace period. Windows has no way to ask.
func RunForeground(ctx context.Context, cmd *exec.Cmd, grace time.Duration) error {
	cmd.WaitDelay = grace + time.Second
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the parent-death signal is bound to this thread
		defer runtime.UnlockOSThread()
		ended <- runForeground(ctx, cmd, grace)
	}()
	return <-ended
}

func runForeground(ctx context.Context, cmd *exec.Cmd, grace time.Duration) error {
	tree, err := startForeground(cmd)
	if err != nil {
		return err
	}
	defer tree.release()
	waiting, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-waiting:
			return
		case <-ctx.Done():
		}
		tree.terminate()
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-waiting:
		case <-timer.C:
			tree.kill()
		}
	}()
	err = cmd.Wait()
	close(waiting)
	<-stopped
	return err
}
