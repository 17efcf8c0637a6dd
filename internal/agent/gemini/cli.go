package gemini

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys"
)

// The first release whose administrator's policy can be given on the command
// line.
const minMajor, minMinor = 0, 35

// Find looks for the CLI: a path, or a name on the PATH. Its version is read
// from the package that it lies in; a CLI that lies in none is asked, which
// takes it seconds. An error is an [*Error] of kind [NotInstalled], or the cause
// of the context's end.
func Find(ctx context.Context, name string) (agent.Program, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return agent.Program{}, &agent.Error{Kind: agent.NotInstalled, Message: tidy(err.Error())}
	}
	if path, err = filepath.Abs(path); err != nil {
		return agent.Program{}, &agent.Error{Kind: agent.NotInstalled, Message: err.Error()}
	}
	c := agent.Program{Path: path, Argv: []string{path}}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return agent.Program{}, &agent.Error{Kind: agent.NotInstalled, Message: err.Error()}
	}
	dirs := []string{filepath.Dir(real)}
	if runtime.GOOS == "windows" {
		// npm's gemini.cmd stands beside node_modules.
		dirs = append(dirs, filepath.Join(filepath.Dir(real), "node_modules", "@google", "gemini-cli"))
	}
	for _, dir := range dirs {
		for range 4 {
			if version, script := readPackage(dir); version != "" {
				c.Version = version
				if runtime.GOOS == "windows" && script != "" {
					// A batch file would parse its arguments once more.
					c.Argv = []string{"node", filepath.Join(dir, script)}
				}
				return c, nil
			}
			dir = filepath.Dir(dir)
		}
	}
	c.Version, c.Late = askVersion(ctx, path, versionTimeout)
	if c.Version == "" && ctx.Err() != nil {
		return agent.Program{}, context.Cause(ctx)
	}
	return c, nil
}

func readPackage(dir string) (version, script string) {
	data, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", ""
	}
	var p struct {
		Name, Version string
		Bin           map[string]string
	}
	if json.Unmarshal(data, &p) != nil || p.Name != "@google/gemini-cli" {
		return "", ""
	}
	return p.Version, p.Bin["gemini"]
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+\S*`)

// versionTimeout bounds how long a CLI may take to say its version.
const versionTimeout = 15 * time.Second

// askVersion has a CLI say its version, which takes it seconds. The version is
// empty where it does not say one, and late is true where it did not end in time.
func askVersion(ctx context.Context, path string, limit time.Duration) (version string, late bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := os.CreateTemp("", "pollux-version-")
	if err != nil {
		return "", false
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command(path, "--version")
	cmd.Env, cmd.Stdout = childEnv(os.Environ(), os.TempDir()), out
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
	return versionNumber.FindString(string(text)), false
}

// ReadOnly reports an error for a CLI that cannot be held to reading.
func ReadOnly(c agent.Program) error {
	major, minor, ok := c.Number()
	switch {
	case c.Late:
		return &agent.Error{Kind: agent.NoVersion, Message: fmt.Sprintf("%s --version took longer than %s", c.Path, versionTimeout)}
	case !ok && c.Version == "":
		return &agent.Error{Kind: agent.NoVersion, Message: c.Path + " --version failed, or printed no version"}
	case !ok:
		return &agent.Error{Kind: agent.NoVersion, Message: fmt.Sprintf("it says %q", shorten(c.Version, 60))}
	case before(major, minor, minMajor, minMinor):
		return &agent.Error{Kind: agent.TooOld, Message: c.Version}
	}
	return checkSystemPolicies(systemPolicies())
}

// The first release that was seen to write to its client's files where it is
// served them, and not to the disk.
const filesMajor, filesMinor = 0, 61

func servesFiles(c agent.Program) bool {
	major, minor, ok := c.Number()
	return ok && !before(major, minor, filesMajor, filesMinor)
}

func before(major, minor, thanMajor, thanMinor int) bool {
	return major < thanMajor || major == thanMajor && minor < thanMinor
}
