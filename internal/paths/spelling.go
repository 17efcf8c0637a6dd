package paths

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"pollux/internal/sys/disk"
)

// A speller finds files by any spelling of their names: with other cases of letters, or, on
// macOS, with accents as separate characters (NFD) or not (NFC).
type speller struct {
	style
	// resolve returns a path without symbolic links, but in the spelling that it is given.
	resolve func(path string) (string, error)
	// path returns the path of a file, or of another hard link to it, as the disk spells
	// it.
	path func(path string) (string, error)
	// names lists a directory.
	names func(dir string) ([]string, error)
	stat  func(path string) (os.FileInfo, error)
}

// thisSpeller is nil on systems where [disk.EvalSymlinks] returns the disk's spelling:
// Linux takes two spellings for two files, and Windows spells the path itself.
func thisSpeller() *speller {
	if runtime.GOOS != "darwin" {
		return nil
	}
	return &speller{local, disk.EvalSymlinks, disk.DiskPath, readNames, os.Lstat}
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// existing returns the path of a file without symbolic links, as the disk spells it.
func (d *speller) existing(path string) (string, error) {
	if d == nil {
		return disk.EvalSymlinks(path)
	}
	path, err := d.resolve(path)
	if err != nil || !filepath.IsAbs(path) {
		return path, err
	}
	return d.spelled(path), nil
}

// spelled returns a path without symbolic links as the disk spells it.
func (d *speller) spelled(path string) string {
	up, name := filepath.Dir(path), filepath.Base(path)
	if up == path {
		return path
	}
	found, err := d.path(path)
	if info, statErr := d.stat(path); err == nil && statErr == nil && info.IsDir() {
		return found // a directory has one path
	}
	dir := d.spelled(up)
	if err == nil && filepath.Dir(found) == dir && d.key(filepath.Base(found)) == d.key(name) {
		return found
	}
	return filepath.Join(dir, d.name(dir, name))
}

// name returns the name of a file in a directory as the disk spells it.
func (d *speller) name(dir, name string) string {
	names, err := d.names(dir)
	if err != nil || slices.Contains(names, name) {
		return name
	}
	file, err := d.stat(filepath.Join(dir, name))
	if err != nil {
		return name
	}
	best := name
	for _, n := range names {
		info, err := d.stat(filepath.Join(dir, n))
		switch {
		case err != nil || !os.SameFile(info, file):
		case d.key(n) == d.key(name):
			return n
		default:
			best = n // the disk takes more spellings for the same than key does
		}
	}
	return best
}
