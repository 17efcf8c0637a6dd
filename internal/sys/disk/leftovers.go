package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Leftovers is a rule that finds files or directories that killed processes left in a
// directory, by name, type and state. They must belong to the user and have the type.
// Symbolic links are not followed.
//
// Several containers can share a directory, and a PID is valid in one container
// only. So prefer a lock or a connection, and combine a PID with an age.
type Leftovers struct {
	Pattern string      // for names, as for [filepath.Match]
	Type    fs.FileMode // 0 for regular files, [fs.ModeDir] or [sock.FileType]

	// Lock names a file in the directory that its process keeps locked with
	// [Lock]. The directory is a leftover if the lock is [Abandoned], and in use
	// if it is held. Without such a file the other fields decide.
	Lock string
	// InUse, if set, reports whether the file or directory with that name is in use or must be
	// skipped; see [pollux/internal/sys/proc.InUse].
	InUse func(name string) bool
	// MinAge is the minimum time since the last change.
	MinAge time.Duration
	// Locked means that a process may keep the file itself locked while it uses it.
	Locked bool
	// Abandoned, if set, is the last check of what all other fields match.
	Abandoned func(path string) bool
}

// TempFiles finds the temporary files of [WriteFile], [ReplaceFile], [ReplaceIn] and
// [EditFile].
var TempFiles = Leftovers{Pattern: TempPattern, MinAge: TempTTL, Locked: true}

// Find returns the leftovers' paths in dir, none if it cannot read dir.
func (l Leftovers) Find(dir string) (found []string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	for _, name := range l.find(root, ".") {
		found = append(found, filepath.Join(dir, name))
	}
	return found
}

// Remove removes the leftovers in dir.
func (l Leftovers) Remove(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	l.RemoveIn(root, ".")
}

// RemoveIn removes the leftovers in dir, a directory below root.
func (l Leftovers) RemoveIn(root *os.Root, dir string) {
	for _, name := range l.find(root, dir) {
		if l.Type == fs.ModeDir {
			removeDir(root, name, l.Lock)
		} else {
			root.Remove(name)
		}
	}
}

// RemoveDir removes a directory. The file with the name lock in it goes last: if this process is
// killed meanwhile, others still find a leftover whose lock is [Abandoned].
func RemoveDir(path, lock string) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	return removeDir(root, filepath.Base(path), lock)
}

func removeDir(root *os.Root, dir, lock string) error {
	if d, err := root.Open(dir); err == nil {
		names, _ := d.Readdirnames(-1)
		d.Close()
		for _, name := range names {
			if name != lock {
				root.RemoveAll(filepath.Join(dir, name))
			}
		}
	}
	// Windows refuses to remove the lock while another process looks whether it is abandoned.
	return rename(func() error { return root.RemoveAll(dir) }, func() error { return nil })
}

// find returns the leftovers' names, relative to root.
func (l Leftovers) find(root *os.Root, dir string) (found []string) {
	d, err := root.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if ok, _ := filepath.Match(l.Pattern, name); !ok {
			continue
		}
		path := filepath.Join(dir, name)
		full := filepath.Join(root.Name(), path)
		info, err := root.Lstat(path)
		if err == nil && info.Mode().Type() == l.Type && own(full, info) && l.abandoned(full, info) &&
			!(l.Locked && locked(root, path)) {
			found = append(found, path)
		}
	}
	return found
}

// locked reports whether a process holds the lock of a file below root. Where the file
// system has no locks, no process does.
func locked(root *os.Root, name string) bool {
	f, err := root.OpenFile(name, os.O_RDWR|NonBlock, 0)
	if err != nil {
		return true
	}
	defer f.Close()
	return errors.Is(lock(f, false), errLocked)
}

func (l Leftovers) abandoned(path string, info fs.FileInfo) bool {
	if l.Lock != "" {
		lock := filepath.Join(path, l.Lock)
		if Abandoned(lock) {
			return true
		}
		if held, err := os.Lstat(lock); err == nil && held.Size() > 0 {
			return false
		}
	}
	if l.InUse != nil && l.InUse(info.Name()) {
		return false
	}
	return time.Since(info.ModTime()) >= l.MinAge && (l.Abandoned == nil || l.Abandoned(path))
}
