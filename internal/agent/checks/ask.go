// Package checks contains doctor's check of the agents that the bridge can ask.
package checks

import (
	"context"
	"errors"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/doctor"
)

// probeTimeout limits the start of an agent.
const probeTimeout = time.Minute

// An Asked is an agent that the bridge can ask.
type Asked struct {
	Agent  *agent.Agent
	Source agent.Source
	// Wall is the one behind which the bridge runs it.
	Wall agent.Wall
	// Probe starts a process of an agent in dir, behind a wall, creates a session, and ends the process.
	// It returns the time until the session was ready.
	Probe func(ctx context.Context, row *agent.Agent, program agent.Program, dir string, wall agent.Wall) (time.Duration, error)
}

// Check reports whether the bridge can ask the agent: that it is installed, new enough to be
// enforced read-only, and signed in. It asks no model.
func (a *Asked) Check(ctx context.Context, c *doctor.Checker) {
	const name = "ask"
	program, err := a.Agent.Check(ctx, a.Source)
	if err != nil {
		a.report(c, name, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	took, err := a.Probe(ctx, a.Agent, program, c.Dir, a.Wall)
	if err != nil {
		a.report(c, name, err)
		return
	}
	c.OK(name, "can be asked with `pollux ask --agent %s`: ready in %.1f s; it may use only %s",
		a.Agent.Name, took.Seconds(), strings.Join(a.Agent.ReadTools, ", "))
}

// report adds a problem. The agent itself works without Pollux's bridge, so it is a warning.
func (a *Asked) report(c *doctor.Checker, name string, err error) {
	var fault *agent.Error
	if !errors.As(err, &fault) {
		c.Warn(name, "", "the bridge cannot ask %s: %s", a.Agent.DisplayName, doctor.Short(err.Error()))
		return
	}
	c.Warn(name, fault.Next(), "the bridge cannot ask %s: %s", a.Agent.DisplayName, doctor.Short(fault.What()))
}
