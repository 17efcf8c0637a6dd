// Package install implements `pollux install`. It adds Pollux to the settings of
// other programs: MCP clients, which then start the bridge, and editors, which
// then start the companion. It creates a [Plan]. The command line shows it to
// the user and applies it.
//
// A plan keeps everything else in a file: other entries, comments, line endings and
// byte order marks.
package install

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/sys/disk"
)

// A Plan is a change to the files of another program.
type Plan struct {
	// Text shows the change to the user: a unified diff of settings, or where files of a
	// package are written or removed, and how many.
	Text string

	write  map[string]string // new contents by path
	last   []string          // paths in write; they are written after everything else
	remove []string          // paths of files
	before map[string]string // contents by path when the plan was made; "" for a missing file
	dirs   []string          // package directories; they are removed once they are empty

	fileMode, dirMode fs.FileMode // for new files and directories
}

func newPlan(fileMode, dirMode fs.FileMode) *Plan {
	return &Plan{write: make(map[string]string), before: make(map[string]string), fileMode: fileMode, dirMode: dirMode}
}

// writes adds a file to write, with its old and new content.
func (p *Plan) writes(path, before, after string) {
	p.write[path], p.before[path] = after, before
}

// removes adds a file to remove, with its content.
func (p *Plan) removes(path, before string) {
	p.remove = append(p.remove, path)
	p.before[path] = before
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool { return len(p.write) == 0 && len(p.remove) == 0 }

// contents returns the current contents of the files that the plan changes.
func (p *Plan) contents() map[string]string {
	now := make(map[string]string)
	for _, name := range slices.Concat(slices.Collect(maps.Keys(p.write)), p.remove) {
		data, _ := disk.ReadFile(name, maxFile)
		now[name] = string(data)
	}
	return now
}

// Apply makes the change, unless a file has changed since the plan was made.
func (p *Plan) Apply() error {
	if !maps.Equal(p.before, p.contents()) {
		return errors.New("the files have changed since; nothing was written: run this command again")
	}
	for _, name := range slices.Sorted(maps.Keys(p.write)) {
		if slices.Contains(p.last, name) {
			continue
		}
		if err := p.put(name); err != nil {
			return err
		}
	}
	for _, name := range p.remove {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for d := filepath.Dir(name); p.owns(d) && os.Remove(d) == nil; d = filepath.Dir(d) {
		}
	}
	for _, name := range p.last {
		if err := p.put(name); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file of the plan.
func (p *Plan) put(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), p.dirMode); err != nil {
		return err
	}
	return disk.EditFile(name, p.before[name], p.write[name], p.fileMode)
}

// owns reports whether a directory belongs to Pollux's package.
func (p *Plan) owns(d string) bool {
	return slices.ContainsFunc(p.dirs, func(dir string) bool {
		return strings.HasPrefix(d+string(filepath.Separator), top(dir)+string(filepath.Separator))
	})
}

// maxFile limits a settings file, in bytes.
const maxFile = 64 << 20

// readSettings reads another program's settings. A missing file is empty.
func readSettings(path string) (string, error) {
	data, err := disk.ReadFile(path, maxFile)
	switch {
	case errors.Is(err, disk.ErrNotRegular) || errors.Is(err, disk.ErrTooLarge):
		return "", fmt.Errorf("%w: move it away first", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	return string(data), nil
}

// ownCommand returns the path of this program. If it is the pollux on the PATH,
// ownCommand returns the path that was found there, because that stays valid
// when a package manager updates Pollux.
func ownCommand() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	target, err := disk.EvalSymlinks(self)
	if err != nil {
		return self, nil
	}
	if found, err := exec.LookPath("pollux"); err == nil && filepath.IsAbs(found) {
		if t, err := disk.EvalSymlinks(found); err == nil && t == target {
			return found, nil
		}
	}
	return target, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
