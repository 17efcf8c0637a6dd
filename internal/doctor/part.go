package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A Part is a list of checks about one part of Pollux or about one agent. They run
// in order.
type Part struct {
	Name string
	// Heading starts the part, for people.
	Heading string
	// Agent is the agent's command, which selects the part; Title is the agent's name.
	Agent, Title string
	// Here reports whether the user has the agent.
	Here   func() bool
	Checks []Check
}

// Agents is the name of the part that lists what was not examined.
const Agents = "agents"

// Select returns the parts of the agents with these names. An error lists the names.
//
// Without names, Select leaves out agents that the user does not have, and a last
// part names them. If the user has none, the agent of the first part stays.
func Select(parts []Part, names []string) (selected []Part, err error) {
	all := Names(parts)
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("doctor does not know the agent %q: use %s", Short(name), strings.Join(all, ", "))
		}
	}
	if len(names) > 0 {
		return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return !slices.Contains(names, p.Agent) }), nil
	}
	var missing []string
	for _, p := range parts {
		if p.Here() {
			selected = append(selected, p)
		} else if !slices.Contains(missing, p.Title) {
			missing = append(missing, p.Title)
		}
	}
	if len(selected) == 0 && len(parts) > 0 {
		first := parts[0].Title
		missing = slices.DeleteFunc(missing, func(title string) bool { return title == first })
		for _, p := range parts {
			if p.Title == first {
				selected = append(selected, p)
			}
		}
	}
	if len(missing) > 0 {
		selected = append(selected, Part{Name: Agents, Heading: "Other agents", Checks: []Check{listMissing(missing)}})
	}
	return selected, nil
}

// listMissing returns the check that names the agents that the user does not have.
func listMissing(titles []string) Check {
	return func(_ context.Context, c *Checker) {
		c.OK("installed", "not installed: %s", strings.Join(titles, ", "))
	}
}

// Names returns the agents' commands, each once.
func Names(parts []Part) (names []string) {
	for _, p := range parts {
		if !slices.Contains(names, p.Agent) {
			names = append(names, p.Agent)
		}
	}
	return names
}

// Installed returns a function for [Part.Here]: it reports whether the command is on
// the PATH, or the directory of the agent's settings exists.
func Installed(command string, settings func() (string, error)) func() bool {
	return func() bool {
		if _, err := exec.LookPath(command); err == nil {
			return true
		}
		dir, err := settings()
		if err != nil {
			return false
		}
		info, err := os.Stat(dir)
		return err == nil && info.IsDir()
	}
}
