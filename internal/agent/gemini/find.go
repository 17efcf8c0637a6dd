package gemini

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/download"
	"pollux/internal/lazy"
	"pollux/internal/npm"
	"pollux/internal/sys"
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
	if path, err = filepath.Abs(path); err != nil {
		return agent.Program{}, fault(agent.NotInstalled, err.Error())
	}
	// npm's batch file on Windows starts Node.js with the CLI's script.
	argv, err := sys.Direct(path, from.Env.LookPath)
	if err != nil {
		return agent.Program{}, fault(agent.NotInstalled, tidy(from.Env, err.Error()))
	}
	c := agent.Program{Path: path, Argv: argv}
	script := argv[len(argv)-1]
	if _, err := os.Stat(script); err != nil {
		return agent.Program{}, fault(agent.NotInstalled, err.Error())
	}
	c.Version = npm.Version(script, download.Package)
	return c, nil
}

// version learns the version of a CLI outside of a package: it runs the CLI.
func version(ctx context.Context, from agent.Source, c agent.Program) (agent.Program, error) {
	c.Version, c.Late = askVersion(ctx, from.Env, c, versionTimeout)
	if c.Version == "" && ctx.Err() != nil {
		return agent.Program{}, context.Cause(ctx)
	}
	return c, nil
}

var versionNumber = lazy.Regexp(`\d+\.\d+\.\d+\S*`)

// versionTimeout limits how long a CLI may take to print its version.
const versionTimeout = 15 * time.Second

// askVersion runs a CLI with --version, which takes seconds. The version is
// empty if the CLI prints none. late reports whether it did not end in time.
func askVersion(ctx context.Context, env agent.Env, c agent.Program, timeout time.Duration) (version string, late bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := os.CreateTemp("", "pollux-version-")
	if err != nil {
		return "", false
	}
	defer os.Remove(out.Name())
	defer out.Close() // Windows does not remove open files
	cmd, err := agent.Command{Args: []string{"--version"}, Env: childEnv(env, os.TempDir())}.Cmd(c, "")
	if err != nil {
		return "", false
	}
	cmd.Stdout = out
	child, err := sys.StartChild(cmd)
	if err != nil {
		return "", false
	}
	select {
	case <-child.Done():
	case <-ctx.Done():
		child.Stop(0)
		return "", true
	}
	text, err := sys.ReadFile(out.Name(), 1<<20)
	if err != nil || child.ExitCode() != 0 {
		return "", false
	}
	return versionNumber().FindString(string(text)), false
}

// ReadOnly returns an error for a CLI that cannot be enforced read-only.
func ReadOnly(_ agent.Source, c agent.Program) error {
	major, minor, ok := c.Number()
	switch {
	case c.Late:
		return fault(agent.NoVersion, fmt.Sprintf("%s --version took longer than %s", c.Path, versionTimeout))
	case !ok && c.Version == "":
		return fault(agent.NoVersion, c.Path+" --version failed, or printed no version")
	case !ok:
		return fault(agent.NoVersion, fmt.Sprintf("it reports %q", agent.Shorten(c.Version, 60)))
	case before(major, minor, minMajor, minMinor):
		return fault(agent.TooOld, c.Version)
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
