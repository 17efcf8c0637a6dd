package companion

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// maxFile bounds the files that can be displayed, in bytes.
const maxFile = 64 << 20

// A target is the file that a diff changes. It is read and written through its root, so that no
// symbolic link leads out of the workspace, no matter when it was made. For a file outside the
// workspace, the root is the deepest existing directory above it.
type target struct {
	path string // absolute and clean: see cleanPath
	root string // the directory that holds it, a real path
	name string // its real path, relative to root
}

// actual returns the path without symbolic links, as they were when the change
// was proposed, or "" if it is not known.
func (t target) actual() string { return filepath.Join(t.root, t.name) }

// A file is the content of a file when a diff is opened or decided.
type file struct {
	text    string
	exists  bool
	version string // see versionOf; absent without a file
	state   fileState
}

const absent = "absent"

var errOutside = errors.New("it is not inside the workspace")

// versionOf returns the version of a file that holds data.
func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// existingDir returns the deepest existing directory above a real path.
func existingDir(path string) string {
	dir := filepath.Dir(path)
	for dir != filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// cleanPath returns a path of an agent as editors name it: with the separators of the
// system, and without ".", doubled separators and one at the end. ok is false if the path
// is relative, or has "..", which leads elsewhere after a symbolic link.
func cleanPath(path string) (clean string, ok bool) {
	path = filepath.FromSlash(path)
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, string(filepath.Separator)), "..") {
		return "", false
	}
	return filepath.Clean(path), true
}

// newTarget finds the file, an absolute clean path, in one of the roots. A path that leads out
// of the workspace, or through a dangling symbolic link, is an error for the user.
func newTarget(path string, roots []string) (target, error) {
	if why := paths.Special(path); why != "" {
		return target{}, errors.New(why)
	}
	outside := fmt.Errorf("%w (%s)", errOutside, strings.Join(roots, ", "))
	if paths.OnOtherServer(roots, path) {
		return target{}, outside
	}
	return within(diskTimeout, func() (target, error) {
		actual := paths.Real(path)
		i := slices.IndexFunc(roots, func(r string) bool { return paths.Contains(r, actual) })
		if i < 0 {
			return target{}, outside
		}
		root := rootAsSpelled(roots[i], actual)
		name, err := filepath.Rel(root, actual)
		if err != nil {
			return target{}, err
		}
		t := target{path, root, name}
		return t, t.checkLinks()
	})
}

// rootAsSpelled returns the root in the spelling of a path inside it, for systems
// that ignore case.
func rootAsSpelled(root, path string) string {
	top := path
	for up := filepath.Dir(top); up != top && paths.Contains(root, up); up = filepath.Dir(top) {
		top = up
	}
	return top
}

// checkLinks returns an error if the real path contains a symbolic link. Such a
// link is dangling, since all others have been resolved.
func (t target) checkLinks() error {
	for name := t.name; name != "."; name = filepath.Dir(name) {
		link := filepath.Join(t.root, name)
		if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link to nothing", link)
		}
	}
	return nil
}

// open opens the workspace root, unless the path now leads elsewhere.
func (t target) open() (*os.Root, error) {
	if now := paths.Real(t.path); now != t.actual() {
		return nil, fmt.Errorf("it now leads to %s: reject the change", now)
	}
	return os.OpenRoot(t.root)
}

// read returns the content of the file. The error for a file that cannot be
// displayed as text says why.
func (t target) read() (file, error) { return within(diskTimeout, t.readNow) }

// readNow is read without a timeout.
func (t target) readNow() (file, error) {
	root, err := t.open()
	if err != nil {
		return file{}, err
	}
	defer root.Close()
	f, err := root.OpenFile(t.name, os.O_RDONLY|disk.NonBlock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return file{version: absent}, nil
	}
	if err != nil {
		return file{}, fmt.Errorf("the file cannot be read: %w", disk.Cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return file{}, fmt.Errorf("the file cannot be read: %w", disk.Cause(err))
	}
	if info.IsDir() {
		return file{}, errors.New("it is a directory")
	}
	data, err := disk.ReadOpen(f, maxFile)
	switch {
	case errors.Is(err, disk.ErrNotRegular):
		return file{}, errors.New("it is not a regular file")
	case errors.Is(err, disk.ErrTooLarge):
		return file{}, fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	case err != nil:
		return file{}, fmt.Errorf("the file cannot be read: %w", disk.Cause(err))
	case bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data):
		return file{}, errors.New("it is not UTF-8 text, and the agent would write it as UTF-8")
	}
	return file{disk.Text(data), true, versionOf(data), newFileState(info)}, nil
}

// replace writes the file. It has no timeout.
func (t target) replace(text string) error {
	root, err := t.open()
	if err != nil {
		return err
	}
	defer root.Close()
	return disk.ReplaceIn(root, t.name, text)
}

// remove removes the file. It has no timeout.
func (t target) remove() error {
	root, err := t.open()
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Remove(t.name)
}
