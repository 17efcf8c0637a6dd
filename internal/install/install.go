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

	changes []fileChange // in the order in which they are made
	dirs    []string     // package directories; they are removed once they are empty

	fileMode, dirMode fs.FileMode // for new files and directories
}

// A fileChange writes or removes a file.
type fileChange struct {
	path string
	// before is the content when the plan was made, "" for a missing file.
	before, after string
	remove        bool
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool { return len(p.changes) == 0 }

// Apply makes the change, unless a file has changed since the plan was made.
func (p *Plan) Apply() error {
	for _, c := range p.changes {
		if now, _ := disk.ReadFile(c.path, maxFile); string(now) != c.before {
			return errors.New("the files have changed since; nothing was written: run this command again")
		}
	}
	for _, c := range p.changes {
		if err := p.make(c); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) make(c fileChange) error {
	if !c.remove {
		if err := os.MkdirAll(filepath.Dir(c.path), p.dirMode); err != nil {
			return err
		}
		return disk.EditFile(c.path, c.before, c.after, p.fileMode)
	}
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for d := filepath.Dir(c.path); p.owns(d) && os.Remove(d) == nil; d = filepath.Dir(d) {
	}
	return nil
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
