// Package checks contains doctor's checks of the agents that the bridge can ask.
package checks

import (
	"context"
	"errors"

	"pollux/internal/agent"
	"pollux/internal/doctor"
)

// An Asked is an agent that the bridge can ask.
type Asked struct {
	Agent  *agent.Agent
	Source agent.Source
	// Wall is the one behind which the bridge runs it.
	Wall agent.Wall
}

// Program checks that the agent's command is on the PATH, and reports its version. title is the
// agent's name, and install the npm package that contains it.
func (a *Asked) Program(title, install string) doctor.Check {
	return func(ctx context.Context, c *doctor.Checker) {
		program, err := a.Agent.Find(ctx, agent.Source{})
		switch {
		case err != nil:
			c.NotInstalled(title, a.Agent.Command, "npm install -g "+install)
		case program.Version == "":
			c.Warn("cli", "npm install -g "+install+"@latest",
				"%s does not report its version; the checks below assume the newest one", program.Path)
		default:
			c.FoundVersion(program.Version)
			c.OK("cli", "%s %s (%s)", title, doctor.Short(program.Version), program.Path)
		}
	}
}

// Check reports whether the bridge can ask the agent: whether it is installed, and new enough
// to be enforced read-only. It does not start the agent, which may take seconds, so it does not
// know whether the agent is signed in.
func (a *Asked) Check(ctx context.Context, c *doctor.Checker) {
	const name = "ask"
	_, err := a.Agent.Check(ctx, a.Source)
	if err == nil {
		err = a.Wall.Check(a.Agent)
	}
	var fault *agent.Error
	switch {
	case err == nil:
		c.OK(name, "can be asked with `pollux ask --agent %s`; it %s", a.Agent.Name, a.Agent.Restriction())
		if a.Agent.Custom {
			c.OK("unchecked", "Pollux does not know %s: not its version, login and tools, nor what it reads, runs and sends because of the project's hooks, plugins and servers", a.Agent.DisplayName)
		}
	case errors.As(err, &fault) && fault.Kind == agent.NotInstalled && c.Missing(): // Program has said so
	case errors.As(err, &fault): // the agent itself works without the bridge
		c.Warn(name, fault.Next(), "the bridge cannot ask %s: %s", a.Agent.DisplayName, doctor.Short(fault.What()))
	default:
		c.Warn(name, "", "the bridge cannot ask %s: %s", a.Agent.DisplayName, doctor.Short(err.Error()))
	}
}
