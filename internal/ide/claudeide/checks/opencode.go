package checks

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"pollux/internal/doctor"
	"pollux/internal/ide/asking"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/shell"
)

// Opencode checks why opencode does not connect to a companion.
func Opencode(ctx context.Context, c *doctor.Checker) {
	search := newSearch(c)
	// Either variable makes opencode connect without the token.
	var set []string
	for _, key := range []string{claudeide.EnvPort, claudeide.EnvOpencodePort} {
		if os.Getenv(key) != "" {
			set = append(set, key)
		}
	}
	if len(set) > 0 {
		c.Fail("variables", shell.UnsetCommand(set...),
			"opencode connects to the port in %s without a token, is refused, and reads no lock file", set[0])
		return
	}
	checkStale(c, search.Locks())
	lock, ok := search.Opencode()
	switch r := c.RunningHere(); {
	case ok && lock.AuthToken != "":
		probe(ctx, c, lock, "127.0.0.1")
	case ok:
		c.Fail("token", "end the program that wrote it", "%s has no token", lock.Path)
	case r != nil && len(r.Surfaces) == 0 && !r.Page:
		c.Fail("view", showChanges,
			"the companion of %s has no lock file, because nothing shows its changes", doctor.Short(r.Editor.DisplayName))
	default:
		c.Fail("companion", strings.ReplaceAll(startOne, "claude", claudeide.OpencodeCommand),
			"no companion is running for %s", c.Dir)
	}
	if m := claudeide.OpencodeAsking(asking.Start{Dir: c.Dir, Getenv: os.Getenv}); m.Silent != "" {
		text, next := m.Finding("opencode", claudeide.OpencodeCommand)
		c.Warn("mode", next, "%s", text)
	}
	c.OK("diffs", "opencode shows its own diffs; it takes the open file, the selection and mentions from the editor")
}

// OpencodeHome returns the directory of opencode's settings.
func OpencodeHome() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "opencode"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".config", "opencode"), err
}
