package agent

import (
	"log/slog"
	"time"
)

// Options configures an agent's runner.
type Options struct {
	// IdleTimeout limits how long an agent may print nothing while it works on a
	// request. The default is 5 minutes.
	IdleTimeout time.Duration
	// Warm limits the warm processes.
	Warm Limits
	// Wall keeps the processes from changing files.
	Wall Wall
	// Log may be nil.
	Log *slog.Logger
}

// Limits limits the warm processes of a runner.
type Limits struct {
	// Processes is how many processes may run at the same time. The default is 3. A
	// replacement counts only after the process that it replaces has ended.
	Processes int
	// IdleTimeout is how long a process without requests keeps running. The
	// default is 10 minutes.
	IdleTimeout time.Duration
	// A process is replaced after this many Sessions, above this much Memory in
	// bytes, together with the processes that it has started, and after the TTL, because
	// agents do not free sessions. The defaults are 30, 1 GiB and 2 hours.
	Sessions int
	Memory   int64
	TTL      time.Duration
	// StartTimeout limits the handshake of a new process. The default is a
	// minute.
	StartTimeout time.Duration
	// WaitTimeout is how long requests wait for the start of a process, counted
	// from the first request that does. After that they run without it, if the agent
	// can do so in another way. The default is 5 seconds.
	WaitTimeout time.Duration
}
