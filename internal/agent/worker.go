package agent

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// A Worker is a process of a warm runner.
type Worker struct {
	// Agent is the agent's name for people.
	Agent string `json:"agent"`
	PID   int    `json:"pid"`
	// Dir is the process's workspace.
	Dir string `json:"dir"`
	// Memory is the result of [proc.TreeMemory] for the process, in bytes, or 0 if unknown.
	Memory int64 `json:"memory"`
	// Running is the number of requests in progress. Sessions is the number of
	// conversations that the process has started.
	Running  int       `json:"running"`
	Sessions int       `json:"sessions"`
	Started  time.Time `json:"started"`
	Used     time.Time `json:"used"`
}

// String describes the process in one line.
func (w Worker) String() string {
	state := "idle for " + time.Since(w.Used).Truncate(time.Second).String()
	if w.Running > 0 {
		state = strconv.Itoa(w.Running) + " running"
	}
	return fmt.Sprintf("%s process %d in %s, %s, %d MB, conversations: %d, up %s",
		cmp.Or(w.Agent, "agent"), w.PID, termtext.Line(paths.Short(w.Dir), 0), state, w.Memory>>20, w.Sessions, time.Since(w.Started).Truncate(time.Second))
}
