package cli

import (
	"os"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
)

// askable returns the names of the agents that the bridge can ask.
func askable() []string {
	names := []string{agents.Default().Name}
	for _, row := range agents.Others() {
		names = append(names, row.Name)
	}
	return names
}

// agentNames lists the agents that the bridge can ask, for people. word is "and" or "or".
func agentNames(word string) string {
	names := []string{agents.Default().DisplayName}
	for _, row := range agents.Others() {
		names = append(names, row.DisplayName)
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}

// source says for whom an agent other than the first runs, according to the environment.
func source(row *agent.Agent) agent.Source { return agent.Source{Command: os.Getenv(row.CommandVar)} }
