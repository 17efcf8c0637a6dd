package checks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
)

// checkDirectory checks that the discovery files belong to the user, and that
// no other user can read or change them.
func (c *checker) checkDirectory() {
	for _, dir := range []string{filepath.Dir(c.lookup.Dir), c.lookup.Dir} {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && !disk.Own(dir, info) && env("SUDO_USER") != "" {
			c.failOtherUser()
			return
		}
		if info, well := c.OwnDirectory(dir, shell.OwnTempDir+", for the editor and the CLI"); info == nil || !well {
			return
		}
	}
	var files []string
	for _, candidate := range c.lookup.Candidates {
		files = append(files, candidate.Path)
	}
	if !c.WarnOpen(files, filepath.Dir(c.lookup.Dir), c.lookup.Dir) {
		c.OK("directory", "Gemini CLI will look in %s", c.lookup.Dir)
	}
}

// checkStale finds files of companions that have ended, and files that are not
// discovery files.
func (c *checker) checkStale(ctx context.Context) {
	for _, candidate := range c.lookup.Candidates {
		if candidate.Err != nil && !errors.Is(candidate.Err, errOtherUser) {
			c.Warn("file", shell.RemoveCommand(candidate.Path), "Gemini CLI skips %s: %v", candidate.Path, candidate.Err)
		}
	}
	stale := geminiide.Stale([]int{c.lookup.PID})
	chosen := c.lookup.Chosen
	if chosen == nil || !slices.Contains(stale, chosen.Path) || c.variablesConnect(ctx, chosen) {
		c.WarnStale(stale, os.Remove)
		return
	}
	c.Fixable("stale", doctor.Failed, "Gemini CLI will use what a companion that has ended left behind, and will try no other", "remove", stale, os.Remove)
}
