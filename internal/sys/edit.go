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

// ErrChanged is wrapped in the error of [EditFile] for a file that is not what
// the edit was made of.
var ErrChanged = errors.New("it has changed meanwhile")

// EditFile is [ReplaceFile] for a file that other programs write too: it fails
// with [ErrChanged], and leaves the file to them, unless it holds before. A
// file that is not there holds nothing and is made with the mode, which should
// be 0600 where it may hold secrets.
//
// Linux and macOS swap the two files and then look at the one that was there.
// If it is not what it should be, it goes back: no write by rename is lost,
// although others can read the edited file until then. Where the system or the
// file system cannot swap, a moment between the last look and the rename
// remains; so it does for a program that has the file open and writes on.
func EditFile(path, before, after string, mode fs.FileMode) error {
	return editFile(path, before, after, mode, func() {})
}

// editFile calls late between the last look at the file and its replacement.
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
	temp, err := writeTemp(root, ".", after, mode, info)
	if errors.Is(err, errOwner) {
		return fmt.Errorf("%s %w: change it as that user", path, err)
	}
	if err != nil {
		return err
	}
	temp = filepath.Join(filepath.Dir(path), temp)
	defer os.Remove(temp)
	changed := fmt.Errorf("%s is left as it is: %w: try again", path, ErrChanged)
	switch is, err := holds(path, before); {
	case errors.Is(err, fs.ErrNotExist) && before == "":
		late()
		err := os.Link(temp, path) // unlike a rename, it replaces nothing
		if errors.Is(err, fs.ErrExist) {
			return changed
		} else if err != nil { // not every file system has links
			return os.Rename(temp, path)
		}
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case !is:
		return changed
	}
	late()
	if err := exchange(temp, path); errors.Is(err, fs.ErrNotExist) {
		return changed
	} else if err != nil {
		return os.Rename(temp, path)
	}
	if is, err := holds(temp, before); err == nil && is {
		return nil
	}
	// The file was written in between. It goes back, and so does what was
	// written over ours in the meantime.
	for latest := after; ; {
		there, err := ReadFile(temp, maxEdited)
		if err != nil {
			return fmt.Errorf("%s has changed meanwhile; what it held is in %s (%w)", path, keep(temp), err)
		}
		if err := exchange(temp, path); err != nil {
			return fmt.Errorf("%s has changed meanwhile; what it held is in %s (%w)", path, keep(temp), err)
		}
		if is, err := holds(temp, latest); err == nil && is {
			return changed
		}
		latest = string(there)
	}
}

// keep gives a temporary file a name under which it stays.
func keep(temp string) string {
	kept := temp + ".kept"
	if os.Rename(temp, kept) != nil {
		return temp
	}
	return kept
}

// holds reports whether the file has that content.
func holds(path, text string) (bool, error) {
	now, err := ReadFile(path, maxEdited)
	if errors.Is(err, ErrTooLarge) {
		return false, nil
	}
	return err == nil && string(now) == text, err
}

// writable returns what the path of a user's file leads to, and its state, nil
// if it does not exist. It makes its directory.
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
