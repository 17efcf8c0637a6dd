package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxEdited bounds a file of [EditFile] in bytes.
const maxEdited = 64 << 20

// ErrChanged reports that the content of a file is no longer what [EditFile] was
// called with.
var ErrChanged = errors.New("another program has changed it")

// EditFile replaces the content of a file that other programs write too. It
// works like [ReplaceFile], but fails with [ErrChanged] and leaves the file
// alone unless its content equals before. A file that does not exist counts as
// empty. EditFile creates it with the mode, which should be 0600 if the file may
// contain secrets.
//
// Linux and macOS swap the two files and then check the old one. If another
// program has changed it, they are swapped back: no write by rename is lost,
// although other programs can read the new file until then. Where the system or
// the file system cannot swap, a write between the last check and the rename is
// lost. So is a later write of a program that keeps the old file open.
func EditFile(path, before, after string, mode fs.FileMode) error {
	return editFile(path, before, after, mode, func() {})
}

// editFile calls late between the last check of the file and its replacement.
func editFile(path, before, after string, mode fs.FileMode, late func()) error {
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
	switch is, err := holds(path, before); {
	case errors.Is(err, fs.ErrNotExist) && before == "":
		late()
		if err := putNew(temp, path, os.Link, os.Rename); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return changed
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case !is:
		return changed
	}
	late()
	if err := exchange(temp, path); errors.Is(err, fs.ErrNotExist) {
		return changed
	} else if err != nil {
		return rename(func() error { return os.Rename(temp, path) }, func() error {
			if is, err := holds(path, before); err != nil || !is {
				return changed
			}
			return nil
		})
	}
	if is, err := holds(temp, before); err == nil && is {
		return nil
	}
	// Another program wrote the file. Swap back, again and again if programs
	// write over ours in the meantime.
	for latest := after; ; {
		there, err := ReadFile(temp, maxEdited)
		if err != nil {
			return fmt.Errorf("another program has changed %s; its content is in %s (%w)", path, keep(temp), err)
		}
		if err := exchange(temp, path); err != nil {
			return fmt.Errorf("another program has changed %s; its content is in %s (%w)", path, keep(temp), err)
		}
		if is, err := holds(temp, latest); err == nil && is {
			return changed
		}
		latest = string(there)
	}
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

// keep renames a temporary file so that no cleanup removes it.
func keep(temp string) string {
	kept := temp + ".kept"
	if os.Rename(temp, kept) != nil {
		return temp
	}
	return kept
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
