package disk

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// TempPattern matches the names of temporary files that [WriteFile], [ReplaceFile] and
// [ReplaceIn] write and then rename, and no others: see [TempName]. A process that is
// killed in between leaves one behind; see [TempFiles].
var TempPattern = ".pollux-" + strings.Repeat("[A-Z2-7]", tempLetters) + ".tmp"

const tempLetters = 26

// TempName returns a random name for a file that is renamed or removed soon.
func TempName() string { return ".pollux-" + rand.Text()[:tempLetters] + ".tmp" }

// TempTTL is the age after which a file that matches [TempPattern] is a leftover.
const TempTTL = time.Minute

// WriteFile writes data to a new file with mode 0600 and renames it to path, so
// that a reader sees either the old content or the new one. It does not sync:
// after a power cut the old content may be back.
func WriteFile(path string, data []byte) error {
	return WriteText(path, Text(data))
}

// WriteText is [WriteFile] for a text, which it does not copy.
func WriteText(path, text string) error {
	f, err := CreateTemp(filepath.Dir(path))
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = rename(func() error { return os.Rename(f.Name(), path) }, func() error { return nil })
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// linkTarget returns path with its symbolic links resolved. The file may not
// exist, but a symbolic link to nothing is an error.
func linkTarget(path string) (string, error) {
	if target, err := EvalSymlinks(path); err == nil {
		return target, nil
	} else if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a symbolic link to a file that does not exist: create that file, or remove the link", path)
	}
	return path, nil
}

// ReplaceFile replaces the content of a user's file at path. It follows
// symbolic links, creates missing directories and otherwise works like
// [ReplaceIn].
func ReplaceFile(path, text string) error {
	path, err := linkTarget(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return ReplaceIn(root, filepath.Base(path), text)
}

// ReplaceIn replaces the content of a user's file at name, a path below root.
// It follows no symbolic link out of root, and a link at name itself is an
// error. It creates missing directories.
//
// The file keeps its mode and owner. ReplaceIn writes a new file and renames it,
// so that a reader sees either the old content or the new one. If that would
// break hard links, or lose the owner, extended attributes (on Linux) or data
// streams (on Windows), or where it can make no file or not replace this one, as with a file
// that is mounted into a container, it writes the old file in place instead. On Windows it
// also does if another program keeps the file open for longer than a second, and where new
// files do not belong to their user, as on FAT and on many file servers.
func ReplaceIn(root *os.Root, name, text string) error {
	return replaceIn(root, name, text, privateTemp)
}

func replaceIn(root *os.Root, name, text string, private func(path string) error) error {
	dir := filepath.Dir(name)
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = nil, root.MkdirAll(dir, 0o755)
	} else if err == nil {
		err = checkWritable(filepath.Join(root.Name(), name), info)
	}
	if err != nil {
		return err
	}
	TempFiles.RemoveIn(root, dir)
	if info != nil && bound(root, name, info) {
		return overwrite(root, name, info, text)
	}
	temp, err := writeTemp(root, name, text, 0o666, info, private)
	if errors.Is(err, errOwner) || info != nil && errors.Is(err, fs.ErrPermission) {
		return overwrite(root, name, info, text)
	}
	if err != nil {
		return err
	}
	err = rename(func() error { return root.Rename(temp, name) }, func() error { return unchanged(root, name, info) })
	if err != nil {
		root.Remove(temp)
	}
	if info != nil && (inUse(err) || errors.Is(err, syscall.EBUSY)) && overwrite(root, name, info, text) == nil {
		return nil // a program that has the file open may let others write it, and a mounted file can be written
	}
	return err
}

// unchanged returns an error if the file below root is not in the state of info, which is
// nil if there was no file.
func unchanged(root *os.Root, name string, info fs.FileInfo) error {
	now, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && info == nil {
		return nil
	}
	if err == nil && (info == nil || !os.SameFile(info, now) || !info.ModTime().Equal(now.ModTime()) || info.Size() != now.Size()) {
		err = fmt.Errorf("%s was changed by another program: try again", filepath.Join(root.Name(), name))
	}
	return err
}

// checkWritable returns an error for a file that must not be replaced.
func checkWritable(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: choose another file", path)
	case info.Mode().Perm()&0o200 == 0:
		return fmt.Errorf("%s is read-only: make it writable with %s", path, MakeWritable)
	}
	return nil
}

// errOwner reports that the new file cannot have the owner of the old one.
var errOwner = errors.New("belongs to another user")

// writeTemp writes a temporary file beside the file name below root, and returns
// its name below root. If it will replace a file, it gets that file's mode and owner,
// otherwise the mode less the umask. The error wraps [errOwner] if it cannot have that
// owner. private makes a file that only the user may read private before it has content.
func writeTemp(root *os.Root, name, text string, mode fs.FileMode, replaced fs.FileInfo, private func(path string) error) (temp string, err error) {
	if replaced != nil {
		mode = 0o600 // until it has the owner
	}
	temp = filepath.Join(filepath.Dir(name), TempName())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", fmt.Errorf("no file can be made in %s: %w: change that, or choose another file",
			filepath.Join(root.Name(), filepath.Dir(name)), Cause(err))
	}
	lock(f, false) // for TempFiles; not every file system has locks
	path := filepath.Join(root.Name(), temp)
	if mode.Perm()&0o077 == 0 {
		err = private(path)
		if replaced != nil && errors.Is(err, ErrForeign) {
			err = errOwner
		}
	}
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil && replaced != nil {
		if keepOwner(f, path, filepath.Join(root.Name(), name), replaced) != nil {
			err = errOwner
		} else {
			err = f.Chmod(replaced.Mode().Perm())
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		root.Remove(temp)
		return "", err
	}
	return temp, nil
}

// overwrite writes the file in place. A reader may see a part of the new
// content, and a crash may leave only a part. If it cannot write all of it, as on a full disk, it
// writes the old content back.
func overwrite(root *os.Root, name string, info fs.FileInfo, text string) error {
	f, err := root.OpenFile(name, os.O_RDWR|NonBlock, 0)
	if err != nil {
		return err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(info, now) {
		err = fmt.Errorf("%s was replaced by another program: try again", filepath.Join(root.Name(), name))
	}
	var old []byte
	if err == nil {
		old, err = io.ReadAll(f)
	}
	if err == nil {
		if err = setContent(f, []byte(text)); err != nil {
			err = errors.Join(err, setContent(f, old))
		}
	}
	return errors.Join(err, f.Close())
}

// setContent replaces the content of an open file.
func setContent(f *os.File, text []byte) error {
	_, err := f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return err
}
