package proc

import (
	"context"
	"os/exec"
	"time"
)

// RunForeground runs a command and waits for it, as [exec.Cmd.Run] does. The command must
// not have a context, and on Windows its standard streams must be files (or nil). It
// stays in the process group of this process, so that the keys of a terminal reach both,
// and ends when this process ends for any reason: with a parent-death signal on Linux, with
// a job object on Windows, where everything that it has started ends too.
//
// When ctx ends, RunForeground ends the command and its descendants as [Child.Stop] does.
// Windows has no way to ask them to end.
func RunForeground(ctx context.Context, cmd *exec.Cmd, grace time.Duration) error {
	cmd.WaitDelay = grace + time.Second
	c, err := startOwned(cmd, startForeground)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Stop(grace) })()
	<-c.done
	return c.err
}
