// Package agents is the table of the agents that the bridge can ask.
package agents

import (
	"pollux/internal/agent"
	"pollux/internal/agent/gemini"
)

// Default returns the agent that the bridge asks.
func Default() *agent.Agent { return gemini.Agent() }
