package disk

import (
	"fmt"
	"os"
)

// A FileState is the state of a file at one time. It differs from an earlier one if the
// file was written, replaced or given another mode since. Links are not followed.
type FileState struct {
	IsDir          bool
	Mode           uint32
	Size, Modified int64
	// Changed and ID are like the results of [Stamp]. They are known on Windows, too, but a
	// program there can set Changed. Both are zero if the file cannot be opened.
	Changed int64
	ID      uint64
}

// StateOf returns a text that changes when the file that a path leads to is written or replaced;
// "" if there is no such file.
func StateOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	changed, id := Stamp(info)
	return fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano(), " ", changed, " ", id)
}

// A Dir is an open directory. Reading the states of many files relative to it is
// several times as fast as by their full paths.
type Dir struct{ file *os.File }

// OpenDir opens a directory.
func OpenDir(path string) (Dir, error) {
	f, err := os.Open(path)
	return Dir{f}, err
}

// Lstat returns the state of a file. name is relative to the directory and may
// have slashes.
func (d Dir) Lstat(name string) (FileState, error) { return d.lstat(name) }

// Close closes the directory.
func (d Dir) Close() error { return d.file.Close() }
