package cli

import (
	"os"
	"slices"

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

// definition returns how the file of settings defines the agent with a name now, or nil.
func definition(name string) (*agent.Definition, error) {
	if slices.Contains(agents.Names(), name) {
		return nil, nil
	}
	v := loadSettings()
	if err := v.FileErr(); err != nil {
		return nil, err
	}
	for _, own := range v.Agents() {
		if own.Name == name {
			return &own, nil
		}
	}
	return nil, nil
}

// source says for whom an agent other than the first runs, according to the environment.
func source(row *agent.Agent) agent.Source { return agent.Source{Command: os.Getenv(row.CommandVar)} }
