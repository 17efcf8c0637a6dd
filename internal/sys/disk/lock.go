package disk

import (
	"io"
	"os"
)

// Lock creates a file and locks it until it is closed or the process ends for any
// reason. See [Abandoned].
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lock(f, true); err == nil {
		// A file that is empty is not locked yet.
		_, err = io.WriteString(f, "locked\n")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Abandoned reports whether a file was locked by [Lock] and is not locked now. It also
// sees the locks of processes in other containers that share the file.
func Abandoned(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|NonBlock, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if lock(f, false) != nil {
		return false
	}
	info, err := f.Stat() // after the lock: before it, the file may be empty
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}
