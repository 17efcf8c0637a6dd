// Package agents is the table of the agents that the bridge can ask. To add an
// agent, add a package below agent and a row here.
package agents

import (
	"context"
	"slices"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/claude"
	"pollux/internal/agent/codex"
	"pollux/internal/agent/copilot"
	"pollux/internal/agent/custom"
	"pollux/internal/agent/gemini"
	"pollux/internal/agent/opencode"
	"pollux/internal/agent/pool"
	"pollux/internal/agent/queue"
	"pollux/internal/agent/qwen"
)

// table has a row for each agent. The first is the default.
var table = []*agent.Agent{
	gemini.Agent(), codex.Agent(), claude.Agent(), copilot.Agent(), qwen.Agent(), opencode.Agent(),
}

// Default returns the first agent of the table. Its settings and variables have existed the
// longest.
func Default() *agent.Agent { return table[0] }

// All returns all agents, in the table's order, and then those that the user's settings define.
func All(own ...agent.Definition) []*agent.Agent {
	return append(slices.Clone(table), Custom(own...)...)
}

// Others returns all agents except [Default].
func Others(own ...agent.Definition) []*agent.Agent { return All(own...)[1:] }

// Custom returns rows for the agents that the user's settings define.
func Custom(own ...agent.Definition) (rows []*agent.Agent) {
	for _, a := range own {
		rows = append(rows, custom.Agent(a))
	}
	return rows
}

// Names returns the names of all agents in the table, and those with which they introduce
// themselves. An agent in the user's settings can have none of them.
func Names() (names []string) {
	for _, row := range table {
		names = append(append(names, row.Name, row.Command), row.Clients...)
	}
	return names
}

// Open returns a runner for an agent's requests, with a queue. The caller closes it.
func Open(row *agent.Agent, opts agent.Options) (*queue.Runner, error) {
	p, err := pool.New(row, opts)
	if err != nil {
		return nil, err
	}
	return queue.New(&row.Explainer, p), nil
}

// Probe starts a warm process of an agent in dir, creates a session, and ends
// the process. It does not ask the model. It returns the time until the session
// was ready.
func Probe(ctx context.Context, row *agent.Agent, program agent.Program, dir string, wall agent.Wall) (time.Duration, error) {
	return pool.Probe(ctx, row, program, dir, wall)
}
