package gemini

import (
	"cmp"
	"context"
	"slices"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/download"
	"pollux/internal/agent/program"
)

// release is the first one that accepts an administrator's policy on the command line.
var release = program.Release{
	Name: "Gemini CLI", Command: "gemini", Variable: "GEMINI_CLI_PATH", Packages: []string{download.Package},
	Oldest: "0.35.0", Update: "npm install -g " + download.Package + "@latest", Try: "gemini -p hello", Env: childEnv, Remedies: remedies,
}

func finder() agent.Finder {
	f := release.Finder(environment)
	f.Locate, f.ReadOnly = locate, ReadOnly
	return f
}

// Find returns the CLI of a source and its version. See [agent.Agent.Find].
func Find(ctx context.Context, from agent.Source) (agent.Program, error) { return row.Find(ctx, from) }

// locate looks for the CLI of a source. If the source names no other program than gemini,
// and none is on the PATH, it looks for the one that Pollux has downloaded.
func locate(from agent.Source) (agent.Program, error) {
	name := cmp.Or(from.Command, release.Command)
	if _, err := from.Env.LookPath(name); err != nil && name == release.Command {
		if own, ok := download.Find(from.Env); ok {
			from.Command = own
		}
	}
	return release.Locate(from)
}

// ReadOnly returns an error for a CLI that cannot be enforced read-only.
func ReadOnly(from agent.Source, c agent.Program) error {
	if err := release.ReadOnly(from, c); err != nil {
		return err
	}
	return checkSystemPolicies(systemPolicies())
}

// filesSince is the first release known to write to the files that its client serves, and not
// to the disk.
var filesSince = []int{0, 61}

func servesFiles(c agent.Program) bool {
	n, ok := agent.Numbers(c.Version)
	return ok && slices.Compare(n[:], filesSince) >= 0
}
