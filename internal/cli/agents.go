package cli

import (
	"os"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
)

// askable returns the names of the agents that the bridge can ask, with the agents of the
// user's settings.
func askable(own ...agent.Definition) (names []string) {
	for _, row := range agents.All(own...) {
		names = append(names, row.Name)
	}
	return names
}

// source says for whom an agent other than the first runs, according to the environment.
func source(row *agent.Agent) agent.Source { return agent.Source{Command: os.Getenv(row.CommandVar)} }
