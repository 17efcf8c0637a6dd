package cli

import (
	"os"
	"slices"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/config"
)

// askable returns the names of the agents that the bridge can ask, with the agents of the
// user's settings.
func askable(own ...agent.Definition) (names []string) {
	for _, row := range agents.All(own...) {
		names = append(names, row.Name)
	}
	return names
}

// bridgeVariables returns the names of those variables of this process that the bridge or an
// agent that it asks reads, sorted.
func bridgeVariables() (names []string) {
	read := []string{"POLLUX_CONFIG", "POLLUX_RUNTIME_DIR", "POLLUX_STATE_DIR"}
	for _, s := range config.Settings {
		if s.Table() == "bridge" || s.Table() == "pool" {
			read = append(read, s.Variable)
		}
	}
	for _, row := range agents.All(loadSettings().Agents()...) {
		read = append(read, row.CommandVar)
		for _, kv := range row.Environment(nil) {
			name, _, _ := strings.Cut(kv, "=")
			read = append(read, name)
		}
	}
	slices.Sort(read)
	return slices.DeleteFunc(slices.Compact(read), func(name string) bool { return os.Getenv(name) == "" })
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
