package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxEdited bounds a file of [EditFile] in bytes.
const maxEdited = 64 << 20

// ErrChanged reports that a file's content differs from what [EditFile] was called with.
var ErrChanged = errors.New("another program has changed it")

// EditFile replaces the content of a file that other programs write too. It
// works like [ReplaceFile], but fails with [ErrChanged] and leaves the file
// alone unless its content equals before. A file that does not exist counts as
// empty. EditFile creates it with the mode, which should be 0600 if the file may
// contain secrets.
//
// A write between the last check and the rename is lost. So is a later write of a
// program that keeps the old file open.
func EditFile(path, before, after string, mode fs.FileMode) error {
	path, info, err := writable(path)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	TempFiles.RemoveIn(root, ".")
	temp, err := writeTemp(root, filepath.Base(path), after, mode, info, privateTemp)
	if errors.Is(err, errOwner) {
		return fmt.Errorf("%s %w: edit it as that user", path, err)
	}
	if err != nil {
		return err
	}
	temp = filepath.Join(filepath.Dir(path), temp)
	defer os.Remove(temp)
	changed := fmt.Errorf("%s was not changed: %w: try again", path, ErrChanged)
	if info == nil && before == "" {
		if err := putNew(temp, path, os.Link, os.Rename); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return changed
	}
	check := func() error {
		is, err := holds(path, before)
		if err == nil && !is || errors.Is(err, fs.ErrNotExist) {
			return changed
		}
		return err
	}
	if err := check(); err != nil {
		return err
	}
	return rename(func() error { return os.Rename(temp, path) }, check)
}

// putNew gives a temporary file its name. The error is [fs.ErrExist] if there is such a file.
func putNew(temp, path string, link, move func(from, to string) error) error {
	err := link(temp, path) // unlike a rename, it replaces nothing
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// Not every file system has links.
	return rename(func() error { return move(temp, path) }, func() error {
		if _, err := os.Lstat(path); err == nil {
			return fs.ErrExist
		}
		return nil
	})
}

// holds reports whether the content of the file is text.
func holds(path, text string) (bool, error) {
	now, err := ReadFile(path, maxEdited)
	if errors.Is(err, ErrTooLarge) {
		return false, nil
	}
	return err == nil && string(now) == text, err
}

// writable resolves the path of a user's file and returns its state, nil if it
// does not exist. It creates the directory.
func writable(path string) (string, fs.FileInfo, error) {
	path, err := linkTarget(path)
	if err != nil {
		return "", nil, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil, os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return "", nil, err
	}
	return path, info, checkWritable(path, info)
}
