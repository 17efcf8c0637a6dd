package checks

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
)

// checkDirectory checks that the discovery files belong to the user, and that
// nobody else can read or change them.
func (c *checker) checkDirectory() {
	ownDir := shell.OwnTempDir + ", for the editor and the CLI"
	for _, dir := range []string{filepath.Dir(c.lookup.Dir), c.lookup.Dir} {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return
		case err != nil:
			c.Fail("directory", ownDir, "%s cannot be examined: %v", dir, doctor.Reason(err))
			return
		case !info.IsDir():
			c.Fail("directory", shell.RemoveCommand(dir),
				"%s is not a directory, so no companion can publish itself", dir)
			return
		case !disk.Own(dir, info) && env("SUDO_USER") != "":
			c.failOtherUser()
			return
		case !disk.Own(dir, info):
			c.Fail("directory", ownDir,
				"%s belongs to another user: your companions cannot publish themselves there", dir)
			return
		}
	}
	open := c.openToOthers()
	if len(open) == 0 {
		c.OK("directory", "Gemini CLI will look in %s", c.lookup.Dir)
		return
	}
	c.WarnOpen(open)
}

// openToOthers lists the directories and files that other users can read or change.
func (c *checker) openToOthers() []string {
	open := slices.DeleteFunc([]string{filepath.Dir(c.lookup.Dir), c.lookup.Dir}, func(dir string) bool {
		info, err := os.Lstat(dir)
		return err != nil || !disk.OthersWrite(dir, info)
	})
	if info, err := os.Stat(c.lookup.Dir); err != nil || info.Mode().Perm()&0o011 == 0 || disk.Private(c.lookup.Dir, info) {
		return open // nobody else can open the files in it
	}
	for _, candidate := range c.lookup.Candidates {
		if info, err := os.Lstat(candidate.Path); err == nil && candidate.Own && !disk.Private(candidate.Path, info) {
			open = append(open, candidate.Path)
		}
	}
	return open
}

// checkStale finds files of companions that have ended, and files that are not
// discovery files.
func (c *checker) checkStale(ctx context.Context) {
	for _, candidate := range c.lookup.Candidates {
		if candidate.Err != nil && !errors.Is(candidate.Err, geminiide.ErrOtherUser) {
			c.Warn("file", shell.RemoveCommand(candidate.Path), "Gemini CLI skips %s: %v", candidate.Path, candidate.Err)
		}
	}
	stale := geminiide.Stale([]int{c.lookup.PID})
	if len(stale) == 0 {
		return
	}
	f := doctor.Finding{
		Check: "stale", Status: doctor.Warning, Next: doctor.FixCommand,
		Text: "companions that have ended left files behind: " + strings.Join(stale, ", "),
		Fix:  "remove " + strings.Join(stale, ", "),
		Apply: func() error {
			var errs []error
			for _, path := range geminiide.Stale([]int{c.lookup.PID}) {
				if slices.Contains(stale, path) { // only what the user has seen, if it is still stale
					if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
						errs = append(errs, err)
					}
				}
			}
			return errors.Join(errs...)
		},
	}
	chosen := c.lookup.Chosen
	if chosen != nil && slices.Contains(stale, chosen.Path) && !c.variablesConnect(ctx, chosen) {
		f.Status, f.Next = doctor.Failed, doctor.FixCommand+"; then, if none is running, "+startOne
		f.Text = "Gemini CLI will use " + chosen.Path +
			", which a companion that has ended left behind, and will try no other"
	}
	c.Add(f)
}
