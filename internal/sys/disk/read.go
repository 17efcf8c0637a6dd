package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
	"unsafe"
)

// Errors of [ReadFile] and [ReadOpen], wrapped in a [fs.PathError].
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("too large")
)

// ReadFile returns the content of a regular file of at most limit bytes. It
// never waits for a FIFO and never reads a device. It checks the file it has
// opened, so the file cannot be exchanged after the check. Errors wrap
// [ErrNotRegular], [ErrTooLarge] or the system's error.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := OpenShared(path, os.O_RDONLY|NonBlock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadOpen(f, limit)
}

// NonBlock is the flag that opens a FIFO without waiting for a writer.
const NonBlock = syscall.O_NONBLOCK

// ReadOpen is [ReadFile] for a file opened with [NonBlock].
func ReadOpen(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: ErrNotRegular}
	case info.Size() > limit:
		return nil, tooLarge(f, limit)
	}
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	_, err = b.ReadFrom(io.LimitReader(f, min(limit, math.MaxInt64-1)+1)) // it may grow
	if err == nil && int64(b.Len()) > limit {
		return nil, tooLarge(f, limit)
	}
	return b.Bytes(), err
}

func tooLarge(f *os.File, limit int64) error {
	return &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)}
}

// errNotDir replaces [syscall.ENOTDIR], which says on Windows that a path is not found.
var errNotDir = errors.New("not a directory")

// ReadDir is [os.ReadDir]. Its error for a file is not [fs.ErrNotExist], which it is for
// that function on Windows.
func ReadDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(dir); statErr == nil {
			err = &fs.PathError{Op: "open", Path: dir, Err: errNotDir}
		}
	}
	return entries, err
}

// Exists reports whether there is a file at path. It follows symbolic links.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Cause returns a file system error without the operation and the path, for
// messages that already contain the path.
func Cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Text returns bytes as a string, without a copy. They must not change afterwards.
func Text(data []byte) string { return unsafe.String(unsafe.SliceData(data), len(data)) }
