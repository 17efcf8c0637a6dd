package gemini

import (
	"cmp"
	"context"
	"os"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/download"
	"pollux/internal/agent/program"
)

// The first release that accepts an administrator's policy on the command line.
const minMajor, minMinor = 0, 35

// Find returns the CLI of a source and its version. See [agent.Agent.Find].
func Find(ctx context.Context, from agent.Source) (agent.Program, error) { return row.Find(ctx, from) }

// locate looks for the CLI of a source. If the source names no other program than gemini,
// and none is on the PATH, it looks for the one that Pollux has downloaded. It reads the
// version from the CLI's package. The error is an [*agent.Error] of kind
// [agent.NotInstalled].
func locate(from agent.Source) (agent.Program, error) {
	name := cmp.Or(from.Command, command)
	path, err := from.Env.LookPath(name)
	if own, ok := download.Find(from.Env); err != nil && name == command && ok {
		path, err = own, nil
	}
	if err != nil {
		return agent.Program{}, fault(agent.NotInstalled, tidy(from.Env, err.Error()))
	}
	p, err := program.At(from, path, download.Package)
	if err != nil {
		return agent.Program{}, fault(agent.NotInstalled, tidy(from.Env, err.Error()))
	}
	return p, nil
}

// version learns the version of a CLI outside of a package: it runs the CLI.
func version(ctx context.Context, from agent.Source, c agent.Program) (agent.Program, error) {
	return program.AskVersion(ctx, c, childEnv(from.Env, os.TempDir()))
}

// ReadOnly returns an error for a CLI that cannot be enforced read-only.
func ReadOnly(_ agent.Source, c agent.Program) error {
	if kind, message := program.CheckVersion(c, minMajor, minMinor); kind != "" {
		return fault(kind, message)
	}
	return checkSystemPolicies(systemPolicies())
}

// The first release known to write to the files that its client serves, and not
// to the disk.
const filesMajor, filesMinor = 0, 61

func servesFiles(c agent.Program) bool {
	major, minor, ok := c.Number()
	return ok && !before(major, minor, filesMajor, filesMinor)
}

func before(major, minor, thanMajor, thanMinor int) bool {
	return major < thanMajor || major == thanMajor && minor < thanMinor
}
