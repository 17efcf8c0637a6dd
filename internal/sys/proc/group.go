package proc

import (
	"syscall"
	"time"
)

// End ends the processes of the group that have lost their parent and have a variable, given as
// KEY=VALUE, in their environment. It asks them to end, and kills them after the grace period. Call
// it after the process of [GroupOf] was killed: a parent-death signal has then killed the command,
// but not the processes that the command has started, such as the agent of a launcher.
func (g Group) End(variable string, grace time.Duration) {
	begun := time.Now()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		asked := make(map[int]bool)
		deadline := time.Now().Add(grace)
		for (g.signal(variable, sig, asked) || time.Since(begun) < orphanTime) && time.Now().Before(deadline) {
			time.Sleep(groupInterval)
		}
	}
}

const (
	// groupInterval is the time between two looks at a group.
	groupInterval = 50 * time.Millisecond
	// orphanTime is how long it may take until the ends of killed processes have reached their
	// children.
	orphanTime = 2 * time.Second
)
