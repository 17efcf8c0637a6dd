package companion

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// sweepDelay keeps the sweep from delaying the companion's start.
const sweepDelay = 500 * time.Millisecond

// sweep removes the temporary files of Pollux processes that were killed while they saved a
// file. It looks in the directories that the journal names in the workspace, and walks no
// tree. It looks twice, since a file that is young at first may be in use.
func (c *Companion) sweep() {
	var dirs map[string][]string
	for _, delay := range []time.Duration{sweepDelay, disk.TempTTL} {
		select {
		case <-time.After(delay):
		case <-c.sending.Done():
			return
		}
		known := dirs
		var err error
		dirs, err = within(diskTimeout, func() (map[string][]string, error) {
			if known == nil {
				known = c.savedDirs()
			}
			c.removeTemps(known)
			return known, nil
		})
		if err != nil {
			return
		}
	}
}

// savedDirs returns the directories of all paths in the journal, by root of the workspace and
// relative to it.
func (c *Companion) savedDirs() map[string][]string {
	entries, _ := c.journal.List()
	dirs := make(map[string][]string)
	for _, root := range c.Roots() {
		for _, e := range entries {
			for _, path := range slices.Compact([]string{e.Path, e.Real}) {
				// Others may be on a disk that does not answer.
				if !paths.Contains(root, path) {
					continue
				}
				dir, ok := paths.Rel(root, filepath.Dir(paths.Real(path)))
				if ok && !slices.Contains(dirs[root], dir) {
					dirs[root] = append(dirs[root], dir)
				}
			}
		}
	}
	return dirs
}

func (c *Companion) removeTemps(dirs map[string][]string) {
	for path, names := range dirs {
		root, err := os.OpenRoot(path)
		if err != nil {
			continue
		}
		for _, name := range names {
			if c.sending.Err() == nil {
				disk.TempFiles.RemoveIn(root, name)
			}
		}
		root.Close()
	}
}
