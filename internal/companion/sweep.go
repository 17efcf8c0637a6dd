package companion

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// sweep removes the temporary files of Pollux processes that were killed while they saved a
// file. It looks in the directories that the journal names in the workspace, and walks no
// tree. It looks once, when files that were young when the companion started may go, too.
func (c *Companion) sweep() {
	select {
	case <-time.After(disk.TempTTL):
	case <-c.sending.Done():
		return
	}
	within(diskTimeout, func() (struct{}, error) {
		c.removeTemps(c.savedDirs())
		return struct{}{}, nil
	})
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
