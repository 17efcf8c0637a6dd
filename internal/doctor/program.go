package doctor

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"time"

	"pollux/internal/lazy"
	"pollux/internal/paths"
	"pollux/internal/sys"
)

const (
	versionTimeout = 10 * time.Second
	// maxPackage bounds a package.json, in bytes.
	maxPackage = 1 << 20
)

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
			version = askVersion(ctx, path)
		}
		if version == "" {
			c.Warn("cli", "npm install -g "+install+"@latest",
				"%s does not report its version; the checks below assume the newest one", path)
			return
		}
		c.OK("cli", "%s %s (%s)", title, Short(version), path)
	}
}

// packageVersion returns the version in the package.json of the npm package that
// contains a command, or "". It is faster than the command.
func packageVersion(path string) string {
	argv, err := sys.Direct(path, exec.LookPath)
	if err != nil {
		return ""
	}
	dir := filepath.Dir(paths.Real(argv[len(argv)-1]))
	for range 3 {
		var pkg struct{ Name, Version string }
		data, err := sys.ReadFile(filepath.Join(dir, "package.json"), maxPackage)
		if err == nil && json.Unmarshal(data, &pkg) == nil && pkg.Version != "" {
			return pkg.Version
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// askVersion returns the version that a command prints, or "".
func askVersion(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd, err := sys.Command(ctx, path, "--version")
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
