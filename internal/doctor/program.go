package doctor

import (
	"context"
	"os/exec"
	"time"

	"pollux/internal/lazy"
	"pollux/internal/npm"
	"pollux/internal/sys/proc"
)

const versionTimeout = 10 * time.Second

var versionNumber = lazy.Regexp(`\d+\.\d+\.\d+\S*`)

// Command returns a check that a command is on the PATH, and reports its version.
// install is the npm package that contains it.
func Command(command, title, install string) Check {
	return func(ctx context.Context, c *Checker) {
		path, err := exec.LookPath(command)
		if err != nil {
			c.Warn("cli", "npm install -g "+install,
				"%s is not installed here: no %s is on the PATH of this shell", title, command)
			return
		}
		version := packageVersion(path)
		if version == "" {
			version = AskVersion(ctx, path)
		}
		if version == "" {
			c.Warn("cli", "npm install -g "+install+"@latest",
				"%s does not report its version; the checks below assume the newest one", path)
			return
		}
		c.FoundVersion(version)
		c.OK("cli", "%s %s (%s)", title, Short(version), path)
	}
}

// packageVersion returns the version of the npm package that contains a command, or "". It
// is faster than the command.
func packageVersion(path string) string {
	argv, err := proc.Direct(path, exec.LookPath)
	if err != nil {
		return ""
	}
	return npm.Version(argv[len(argv)-1], "")
}

// AskVersion returns the version that a command prints, or "".
func AskVersion(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd, err := proc.Command(ctx, path, "--version")
	if err != nil {
		return ""
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return versionNumber().FindString(string(out))
}
