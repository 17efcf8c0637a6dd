package shared

import (
	"os"
	"sync"

	"pollux/internal/agent"
	"pollux/internal/paths"
)

// newDirs are the directories that an agent's tools create on disk for new files, although
// the files are the bridge's. A bridge on this machine removes them itself.
type newDirs struct {
	root string

	mu   sync.Mutex
	dirs []string // directories that did not exist
}

// watch returns a change that notes the missing directories of its files.
func (d *newDirs) watch(change *agent.Change) *agent.Change {
	watched := *change
	watched.Files = func() agent.Files { return watchedFiles{change.Files(), d} }
	return &watched
}

// expect notes the directories that a file needs and that do not exist yet.
func (d *newDirs) expect(path string) {
	if !paths.Contains(d.root, path) {
		return
	}
	missing := paths.Missing(d.root, path)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirs = append(missing, d.dirs...) // the deepest first
}

// remove removes the directories that are empty.
func (d *newDirs) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range d.dirs {
		os.Remove(dir)
	}
}

type watchedFiles struct {
	agent.Files
	dirs *newDirs
}

// Read implements [agent.Files]. Agents read a file before they create it.
func (f watchedFiles) Read(path string) (string, error) {
	f.dirs.expect(path)
	return f.Files.Read(path)
}

// Write implements [agent.Files].
func (f watchedFiles) Write(path, text string) error {
	f.dirs.expect(path)
	return f.Files.Write(path, text)
}
