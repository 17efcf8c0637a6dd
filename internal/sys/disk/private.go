package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Own reports whether a file belongs to this process's user. info is its state. On
// Windows, Own reads the owner at path. A file that belongs to the Administrators group or to
// the system counts as the user's own there, since programs with raised rights create
// such files for their user.
func Own(path string, info fs.FileInfo) bool { return own(path, info) }

// SameOwner reports whether two files, given by their paths and states, belong to the
// same user.
func SameOwner(path string, info fs.FileInfo, other string, otherInfo fs.FileInfo) bool {
	return sameOwner(path, info, other, otherInfo)
}

// Administered reports whether a file belongs to root and only root can write it. On
// Windows that is the system, its installer or the Administrators group.
func Administered(path string, info fs.FileInfo) bool {
	return administered(path, info)
}

// Private reports whether other users have no permissions for a file or directory. info
// is its state. On Windows, Private reads the access control list at path; the system and
// the Administrators group do not count as other users there, as root does not.
func Private(path string, info fs.FileInfo) bool { return private(path, info) }

// OthersWrite reports whether other users can change a file, or a directory's entries.
// See [Private].
func OthersWrite(path string, info fs.FileInfo) bool { return othersWrite(path, info) }

// DenyWrites removes the permission of other users to change a file or directory of the
// user. On Windows it removes all their permissions.
func DenyWrites(path string, info fs.FileInfo) error { return denyWrites(path, info) }

// Narrow removes all permissions of other users from a regular file or directory
// that belongs to the user. It does not follow symbolic links.
func Narrow(path string) error { return narrow(path) }

// ErrForeign reports that a directory belongs to another user.
var ErrForeign = errors.New("the directory belongs to another user")

// PrivateDir creates dir and its missing parents with mode 0700. It sets an
// existing directory to that mode. A symbolic link or a directory of another
// user is an error.
//
// On Windows the new directories have a protected access control list that names the
// user alone, and the files in them inherit it. An existing directory gets such a list
// unless it is [Private] already.
func PrivateDir(dir string) error {
	err := mkdirAllPrivate(dir)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, errNotDir) {
		return fmt.Errorf("%w: remove it", err)
	}
	if err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: remove it", dir)
	case !own(dir, info):
		return &fs.PathError{Op: "use", Path: dir, Err: ErrForeign}
	}
	return makePrivate(dir, info)
}

// PrivateTempDir is [PrivateDir] for a directory in the temporary directory.
// Its errors name the variable to set.
func PrivateTempDir(dir string) error {
	err := PrivateDir(dir)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrForeign) {
		return fmt.Errorf("%w: set %s to a directory that you own, also for the agent", err, TempVars)
	}
	return err
}

// MkdirTemp is [os.MkdirTemp], which makes a directory that only the user can read, also
// on Windows.
func MkdirTemp(dir, pattern string) (string, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	return mkdirTemp(dir, pattern)
}

// CreateTemp creates a file with a [TempName] that only the user can read.
func CreateTemp(dir string) (*os.File, error) { return createPrivate(filepath.Join(dir, TempName())) }
