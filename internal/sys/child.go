package sys

import (
	"os/exec"
	"runtime"
	"time"
)

// A Child is a process of ours that leads a group of its own, so that it and
// what it starts can be ended together. It does not outlive us, however we
// end, where the system can promise that: by a parent-death signal on Linux, a
// job object on Windows.
//
// One goroutine, run, owns the process: it alone signals it and reaps it.
// Until a process is reaped, the system gives its PID and its group's number
// to no other. So run first waits for the end without reaping, ends what is
// left of the group, and reaps last. After that nothing is signalled.
type Child struct {
	cmd  *exec.Cmd
	stop chan time.Duration // the grace of a Stop
	done chan struct{}
}

// A process is what the owner of a [Child] does with it. All methods but wait
// are called by one goroutine.
type process interface {
	// wait returns when the process has ended. It does not reap it.
	wait()
	// terminate asks the process and all below it to end; kill ends them.
	terminate()
	kill()
	// reap ends what is left of the group and gives the PID back. The process
	// has ended.
	reap()
}

const (
	// stopInterval is the time between two signals of [Child.Stop].
	stopInterval = 500 * time.Millisecond
	// killTimeout is how long [Child.Stop] waits for a killed process.
	killTimeout = 3 * time.Second
)

// StartChild starts the command as a [Child]. Its standard streams must be
// files (or nil): a pipe that a grandchild holds open would keep the child
// from being done.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	c := newChild(cmd)
	leadGroup(cmd)
	TieToParent(cmd)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // which the parent-death signal is bound to
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		p, err := adopt(cmd)
		if err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			started <- err
			return
		}
		started <- nil
		c.run(p)
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
			p.reap()
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

// PID is the child's. Once Done is closed it may be another process's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended and what was left of its group has
// been killed.
func (c *Child) Done() <-chan struct{} { return c.done }

// ExitCode is the child's, as a shell gives it. It is valid once Done is
// closed.
func (c *Child) ExitCode() int { return ExitCode(c.cmd.ProcessState) }

// Stop ends the child and all below it: politely, and again every half second,
// since a program that is still starting may lose the signal; by force after
// the grace. It returns when the child is gone, or at the latest a few seconds
// after the grace, should the system not let go of it. It may be called more
// than once; the shortest grace counts.
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
