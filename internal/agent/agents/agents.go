// Package agents is the table of the agents that the bridge can ask.
package agents

import (
	"cmp"
	"fmt"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini"
)

// Default returns the agent that the bridge asks.
func Default() *agent.Agent { return gemini.Agent() }

// Open returns a runner of an agent. The caller closes it.
func Open(row *agent.Agent, opts agent.Options) (agent.Runner, error) {
	if row.Name != "gemini" {
		return nil, fmt.Errorf("no runner for the agent %q", row.Name)
	}
	spawner, err := gemini.NewSpawner(gemini.Config{
		Command: cmp.Or(opts.Command, row.Command), Idle: opts.IdleTimeout, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	if opts.Kind == agent.Spawned {
		return spawner, nil
	}
	warm := gemini.NewWarm(spawner, gemini.WarmConfig{
		Workers: opts.Warm.Processes, Idle: opts.Warm.IdleTimeout, Sessions: opts.Warm.Sessions,
		Memory: opts.Warm.Memory, Age: opts.Warm.TTL, Handshake: opts.Warm.StartTimeout, Wait: opts.Warm.WaitTimeout,
	})
	if opts.AheadDir != "" {
		warm.Warm(opts.AheadDir)
	}
	return warm, nil
}
