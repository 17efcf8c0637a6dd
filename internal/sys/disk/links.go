package disk

import (
	"errors"
	"path/filepath"
)

// EvalSymlinks is [filepath.EvalSymlinks], which on Windows also resolves junctions, and
// which finds what is below a volume that is mounted in a directory. The path to that is
// an error for Go since 1.23, and a junction is not a link.
func EvalSymlinks(path string) (string, error) { return evalSymlinks(path) }

// maxLinks limits the links of a path, as [filepath.EvalSymlinks] does.
const maxLinks = 255

var errLinks = errors.New("too many links")

// A linkWalk resolves the links of a path, one name after the other.
type linkWalk struct {
	// target returns where a link or junction leads, or "" for any other file. The error
	// is that of a file that does not exist.
	target func(path string) (string, error)
	// name returns the name of an existing file as the disk spells it.
	name  func(path string) (string, error)
	links int
}

// real returns an absolute path without links.
func (w *linkWalk) real(path string) (string, error) {
	path = filepath.Clean(path)
	up := filepath.Dir(path)
	if up == path {
		return path, nil
	}
	dir, err := w.real(up)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(path))
	to, err := w.target(path)
	if err != nil {
		return "", err
	}
	if to == "" {
		name, err := w.name(path)
		return filepath.Join(dir, name), err
	}
	if w.links++; w.links > maxLinks {
		return "", errLinks
	}
	switch {
	case filepath.IsAbs(to):
	case to[0] == filepath.Separator: // the drive is that of the link
		to = filepath.VolumeName(dir) + to
	default:
		to = filepath.Join(dir, to)
	}
	return w.real(to)
}
