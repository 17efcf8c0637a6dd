package proc

import (
	"context"
	"os/exec"
	"runtime"
	"time"
)

// A Child is a child process that leads its own process group, so that it can
// be stopped together with everything it starts. Where the system can enforce
// it, the child also ends when this process ends for any reason: with a
// parent-death signal on Linux, with a job object on Windows.
//
// One goroutine, run, owns the process: only it signals and reaps the process.
// Until a process is reaped, the system does not reuse its PID and the number
// of its group. So run first waits for the end without reaping, then kills the
// rest of the group, and reaps last. After that it signals nothing.
type Child struct {
	cmd  *exec.Cmd
	stop chan time.Duration // the grace period of a Stop
	done chan struct{}
	err  error // of the command; valid once done is closed
}

// A process has the methods that the owner of a [Child] needs. One goroutine calls
// all of them except wait.
type process interface {
	// wait returns when the process has ended. It does not reap it.
	wait()
	// terminate asks the process and its descendants to end; kill ends them.
	terminate()
	kill()
	// reap kills the rest of the group and releases the PID. The process has
	// ended. The error is that of [exec.Cmd.Wait].
	reap() error
}

const (
	// stopInterval is the time between two signals of [Child.Stop].
	stopInterval = 500 * time.Millisecond
	// killTimeout limits how long [Child.Stop] waits for a killed process.
	killTimeout = 3 * time.Second
)

// CanAskToEnd reports whether [Child.Stop] can ask a child to end before it kills it. On
// Windows it needs a console.
func CanAskToEnd() bool { return canAskToEnd() }

// StartChild starts the command as a [Child]. Its standard streams must be
// files (or nil): a pipe that a grandchild holds open would keep the child
// from being done.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	leadGroup(cmd)
	return startOwned(cmd, startLeader)
}

// startOwned starts the command with a function, on a goroutine that owns it.
func startOwned(cmd *exec.Cmd, start func(*exec.Cmd) (process, error)) (*Child, error) {
	c := newChild(cmd)
	tieToParent(cmd)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the parent-death signal is bound to this thread
		defer runtime.UnlockOSThread()
		p, err := start(cmd)
		started <- err
		if err == nil {
			c.run(p)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

func newChild(cmd *exec.Cmd) *Child {
	return &Child{cmd: cmd, stop: make(chan time.Duration), done: make(chan struct{})}
}

// run owns the process until it is reaped.
func (c *Child) run(p process) {
	defer close(c.done)
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		p.wait()
	}()
	again := time.NewTicker(stopInterval)
	again.Stop()
	defer again.Stop()
	var force *time.Timer
	var forced <-chan time.Time
	var deadline time.Time
	signal := p.terminate
	for {
		select {
		case <-exited:
			c.err = p.reap()
			return
		case grace := <-c.stop:
			again.Reset(stopInterval)
			at := time.Now().Add(grace)
			switch {
			case force == nil:
				force = time.NewTimer(grace)
				defer force.Stop()
				forced, deadline = force.C, at
			case at.Before(deadline):
				force.Reset(grace)
				deadline = at
			}
		case <-forced:
			signal = p.kill
		case <-again.C:
		}
		signal()
	}
}

// PID returns the child's process ID. The system may reuse it once Done is
// closed.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done returns a channel that is closed when the child has ended and the rest
// of its group has been killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// ExitCode returns the child's exit code as a shell reports it. It is valid once
// Done is closed.
func (c *Child) ExitCode() int { return ExitCode(c.cmd.ProcessState) }

// Stop ends the child and its descendants. It asks them to end every half
// second, since a program that is starting may miss the signal, and kills them
// after the grace period. It returns when the child has ended, or a few seconds
// after the grace period if the system does not release it. It may be called
// more than once; the shortest grace period counts.
func (c *Child) Stop(grace time.Duration) {
	timeout := time.NewTimer(grace + killTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
		return
	case c.stop <- grace:
	case <-timeout.C:
		return
	}
	select {
	case <-c.done:
	case <-timeout.C:
	}
}

// RunForeground runs a command and waits for it, as [exec.Cmd.Run] does. The command must
// not have a context, and on Windows its standard streams must be files (or nil). It
// stays in the process group of this process, so that the keys of a terminal reach both,
// and ends when this process ends for any reason: with a parent-death signal on Linux, with
// a job object on Windows, where everything that it has started ends too. On Linux, see
// [Group] for that.
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
