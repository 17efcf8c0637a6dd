package sys

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Leftovers describes what killed processes may have left in a directory: its
// name, its type and when it is abandoned. Only what belongs to the user and
// has the type is ever looked at; a symbolic link is none of the types.
//
// Several processes of several containers can share a directory, and a PID
// means something in one container only. So a lock or a connection decides
// where there is one, and a PID only together with an age.
type Leftovers struct {
	Pattern string      // of the names, as for [filepath.Match]
	Type    fs.FileMode // 0 for regular files, [fs.ModeDir] or [fs.ModeSocket]

	// Lock names a file in a directory that its process holds with [Lock]. One
	// that is held keeps the directory, and one that is [Abandoned] condemns it.
	// Without a lock the other rules decide.
	Lock string
	// PID returns the process of a name, or 0 for a name to leave alone. One that
	// is alive keeps it.
	PID func(name string) int
	// MinAge is how long ago the last change must be.
	MinAge time.Duration
	// Abandoned, if set, has the last word on what the other rules condemn.
	Abandoned func(path string) bool
}

// TempFiles are the temporary files of [WriteFile], [ReplaceFile] and
// [ReplaceIn].
var TempFiles = Leftovers{Pattern: TempPattern, MinAge: TempTTL}

// Find returns the paths of what is left in dir; none if it cannot be read.
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

// Remove removes what is left in dir.
func (l Leftovers) Remove(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	l.RemoveIn(root, ".")
}

// RemoveIn removes what is left in dir, a directory below root.
func (l Leftovers) RemoveIn(root *os.Root, dir string) {
	for _, name := range l.find(root, dir) {
		if l.Type == fs.ModeDir {
			root.RemoveAll(name)
		} else {
			root.Remove(name)
		}
	}
}

// find returns names below root.
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
		info, err := root.Lstat(path)
		if err == nil && info.Mode().Type() == l.Type && own(info) && l.abandoned(filepath.Join(root.Name(), path), info) {
			found = append(found, path)
		}
	}
	return found
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
	if l.PID != nil {
		if pid := l.PID(info.Name()); pid <= 0 || Alive(pid) {
			return false
		}
	}
	return time.Since(info.ModTime()) >= l.MinAge && (l.Abandoned == nil || l.Abandoned(path))
}

// RefusesConnections reports whether nobody listens on a socket. A process of
// another container that shares the directory does.
func RefusesConnections(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err == nil {
		conn.Close()
	}
	return err != nil && Refused(err)
}
