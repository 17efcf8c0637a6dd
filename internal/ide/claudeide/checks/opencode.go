package checks

import (
	"context"
	"os"

	"pollux/internal/doctor"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/shell"
)

const opencodeCommand = "opencode"

// Opencode checks why opencode does not connect to a companion.
func Opencode(ctx context.Context, c *doctor.Checker) {
	s := newSearch(c)
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
	checkStale(c, s.locks())
	found, ok := s.opencode()
	switch l := newLock("opencode", opencodeCommand, "127.0.0.1", s, found); {
	case !ok && c.NoView():
	case !ok, found.Pollux.Stale(found.PID) && c.RunningHere() == nil:
		c.None(opencodeCommand)
	case l.AuthToken == "":
		c.Fail("token", "end the program that wrote it", "%s has no token", l.Found.Path)
	default:
		probe(ctx, c, l)
	}
	c.OK("diffs", "opencode shows its own diffs; it takes the open file, the selection and mentions from the editor")
}
