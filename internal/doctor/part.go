package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A Part is a list of checks about one agent, one editor, or the bridge. They run in order.
type Part struct {
	Name string
	// Heading starts the part, for people.
	Heading string
	// Arg is the argument that selects the part.
	Arg string
	// Agent is set if the part is about an agent.
	Agent bool
	// Here reports whether the user has what the part is about.
	Here   func() bool
	Checks []Check
}

// Select returns the parts with these arguments. An error lists the arguments.
//
// Without any, Select leaves out what the user does not have. A last part then says which
// agents that are, and whether one runs here.
func Select(parts []Part, args []string) (selected []Part, err error) {
	all := Names(parts)
	for _, arg := range args {
		if !slices.Contains(all, arg) {
			return nil, fmt.Errorf("doctor does not know %q: use %s", Short(arg), strings.Join(all, ", "))
		}
	}
	if len(args) > 0 {
		return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool {
			return !slices.Contains(args, p.Arg)
		}), nil
	}
	var missing []string
	some := false
	for _, p := range parts {
		switch {
		case p.Here():
			selected = append(selected, p)
			some = some || p.Agent
		case p.Agent:
			missing = append(missing, p.Heading)
		}
	}
	if !some { // everything else can wait
		return []Part{{Name: Agents, Heading: "Agents", Checks: []Check{installFirst(missing)}}}, nil
	}
	selected = append(selected, Part{Name: Here, Heading: "This directory", Checks: []Check{checkHere}})
	if len(missing) > 0 {
		selected = append(selected, Part{Name: Agents, Heading: "Other agents", Checks: []Check{listMissing(missing)}})
	}
	return selected, nil
}

// installFirst returns the check for a user without an agent.
func installFirst(titles []string) Check {
	return func(_ context.Context, c *Checker) {
		next := "pollux run downloads Gemini CLI; or npm install -g @anthropic-ai/claude-code, for example"
		if _, err := exec.LookPath("npm"); err != nil {
			next = "install Node.js 20 or newer (https://nodejs.org); then pollux run downloads Gemini CLI"
		}
		c.Fail("installed", next, "no agent is installed: Pollux works with %s", strings.Join(titles, ", "))
	}
}

// listMissing returns the check that names the agents that the user does not have.
func listMissing(titles []string) Check {
	return func(_ context.Context, c *Checker) {
		c.OK("installed", "not installed: %s", strings.Join(titles, ", "))
	}
}

// checkHere checks what all agents need, and says once that agents have found no companion.
func checkHere(_ context.Context, c *Checker) {
	Disk(c)
	if c.none {
		c.Warn("companion", "pollux run, or start an editor here that has Pollux (pollux install)",
			"no companion is running for %s", c.Dir)
	} else if r := c.RunningHere(); r != nil {
		c.OK("companion", "the companion of %s is running here", Short(r.Editor.DisplayName))
	}
}

// Names returns the arguments that select parts.
func Names(parts []Part) (names []string) {
	for _, p := range parts {
		names = append(names, p.Arg)
	}
	return names
}

// Installed returns a function for [Part.Here]: it reports whether the command is on
// the PATH, or the agent's directory of settings exists.
func Installed(command, settings string) func() bool {
	return func() bool {
		if _, err := exec.LookPath(command); err == nil {
			return true
		}
		info, err := os.Stat(settings)
		return err == nil && info.IsDir()
	}
}
