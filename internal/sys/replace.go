package sys

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TempPattern is the [os.CreateTemp] pattern of the files that [WriteFile],
// [ReplaceFile] and [ReplaceIn] write before they rename them. A process that
// is killed in between leaves one behind.
const TempPattern = ".pollux-*.tmp"

// TempTTL is the age from which a file named by [TempPattern] is a leftover.
const TempTTL = time.Minute

// WriteFile writes data to path with mode 0600 from the file's first byte and
// puts it in place with one rename, so that a reader sees the old content or
// the new one. It does not sync: after a power cut the old content may be
// back.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), TempPattern) // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// linkTarget returns the file that path is or, as a symbolic link, leads to.
func linkTarget(path string) (string, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	} else if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a symbolic link to nothing: make what it links to, or remove it", path)
	}
	return path, nil
}

// ReplaceFile replaces the content of the user's file at path, through a
// symbolic link. It creates missing directories and otherwise works like
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

// ReplaceIn replaces the content of the user's file at name, a path below
// root. No symbolic link leads it out of root, and one that stands at name is
// an error. It creates missing directories.
//
// The file keeps its mode and owner. A new file takes the place of the old
// one with one rename, so that a reader sees the old content or the new one.
// Where that would cut hard links, or lose the owner or (on Linux) extended
// attributes, the old file is written in place instead.
func ReplaceIn(root *os.Root, name, text string) error {
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
	temp, err := writeTemp(root, dir, text, 0o666, info)
	if errors.Is(err, errOwner) {
		return overwrite(root, name, info, text)
	}
	if err != nil {
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		root.Remove(temp)
		return err
	}
	return nil
}

// checkWritable returns an error for what the user cannot mean to replace.
func checkWritable(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: name another", path)
	case info.Mode().Perm()&0o200 == 0:
		return fmt.Errorf("%s is read-only: make it writable (chmod u+w) first", path)
	}
	return nil
}

// errOwner means that a file cannot be replaced by one of the same owner.
var errOwner = errors.New("belongs to another user")

// writeTemp writes a temporary file in dir, a directory below root, and returns
// its name below root. The file gets the mode, less the umask, or the mode and
// the owner of the file that it is to replace. An error wraps [errOwner] if that
// is not possible.
func writeTemp(root *os.Root, dir, text string, mode fs.FileMode, replaced fs.FileInfo) (name string, err error) {
	if replaced != nil {
		mode = 0o600 // until it has its owner
	}
	name = filepath.Join(dir, strings.Replace(TempPattern, "*", rand.Text(), 1))
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err == nil && replaced != nil {
		if keepOwner(f, replaced) != nil {
			err = errOwner
		} else {
			err = f.Chmod(replaced.Mode().Perm())
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		root.Remove(name)
		return "", err
	}
	return name, nil
}

// overwrite writes the file in place. A reader, or a crash, may see a part of
// the new content.
func overwrite(root *os.Root, name string, info fs.FileInfo, text string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|NonBlock, 0)
	if err != nil {
		return err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(info, now) {
		err = fmt.Errorf("%s was replaced at this moment: try again", filepath.Join(root.Name(), name))
	}
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}
