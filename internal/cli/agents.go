package cli

import (
	"os"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
)

// askable returns the names of the agents that the bridge can ask.
func askable() []string {
	var names []string
	for _, row := range agents.All() {
		names = append(names, row.Name)
	}
	return names
}

// agentTitles lists the agents that the bridge can ask, for people: "A, B or C".
func agentTitles() string {
	var titles []string
	for _, row := range agents.All() {
		titles = append(titles, row.DisplayName)
	}
	last := len(titles) - 1
	return strings.Join(titles[:last], ", ") + " or " + titles[last]
}

// source says for whom an agent other than the first runs, according to the environment.
func source(row *agent.Agent) agent.Source { return agent.Source{Command: os.Getenv(row.CommandVar)} }
