package agent

import (
	"log/slog"
	"time"
)

// Options configure the runner of an agent.
type Options struct {
	// Command is the agent's program: a path, or a name on the PATH. Empty means
	// the agent's own name for it.
	Command string
	// IdleTimeout is how long an agent may print nothing while it works on a
	// request; 5 minutes when zero.
	IdleTimeout time.Duration
	// Kind is [Warmed] or [Spawned]. A warm runner starts a process for a single
	// request only where it cannot keep one. Empty means [Warmed].
	Kind string
	// Warm limits the processes of a warm runner.
	Warm Limits
	// AheadDir, if set, is a workspace for which a warm runner starts a process
	// at once, ahead of the first request.
	AheadDir string
	// Log may be nil.
	Log *slog.Logger
}

// Limits limit the warm processes of a runner.
type Limits struct {
	// Processes is how many processes run at once; 3 when zero. A process that
	// takes over from another counts only once the other has ended.
	Processes int
	// IdleTimeout ends a process that has no request for this long; 10 minutes
	// when zero.
	IdleTimeout time.Duration
	// A process is replaced after this many Sessions, above this much Memory
	// (in bytes), and after the TTL, because agents do not free sessions. The
	// defaults are 30, 1 GiB and 2 hours.
	Sessions int
	Memory   int64
	TTL      time.Duration
	// StartTimeout ends a process that does not complete the handshake in time;
	// a minute when zero.
	StartTimeout time.Duration
	// WaitTimeout is how long requests wait for a process, counted from its
	// start; after that they are run without it; 5 seconds when zero.
	WaitTimeout time.Duration
}
