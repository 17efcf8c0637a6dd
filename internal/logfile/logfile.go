// Package logfile is the log that Pollux's processes share: a file that all of them append
// to, and the file before it.
package logfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"pollux/internal/sys/disk"
)

// MaxSize is the size at which a log is renamed, so that a new one begins, in bytes.
const MaxSize = 1 << 20

// Default returns the path of the log in the state directory.
func Default() (string, error) {
	dir, err := disk.StateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "log", "pollux.log"), nil
}

// Old returns the path of the log before the one at path.
func Old(path string) string { return path + ".1" }

// A File appends to a log. Each write is one record. Its methods may be called from several
// goroutines.
type File struct {
	path string
	mu   sync.Mutex
	f    *os.File // nil until the first write
}

// New returns the log at path. The first write creates it, in a private directory.
func New(path string) *File { return &File{path: path} }

// Open opens the log at path, and creates it if the directory exists.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path, f: f}, nil
}

func open(path string) (*os.File, error) {
	return disk.OpenShared(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|disk.NonBlock, 0o600)
}

// Path returns the path of the log.
func (l *File) Path() string { return l.path }

// Write appends a record. If the log is full, it begins a new one.
func (l *File) Write(record []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		if err := disk.PrivateDir(filepath.Dir(l.path)); err != nil {
			return 0, err
		}
	}
	if err := l.currentLocked(int64(len(record))); err != nil {
		return 0, err
	}
	return l.f.Write(record)
}

// currentLocked opens the log, unless it is open, and begins a new one if a record of that
// size does not fit. Another process may have done so before.
func (l *File) currentLocked(size int64) error {
	if l.f != nil && !same(l.f, l.path) {
		l.f.Close()
		l.f = nil
	}
	if l.f == nil {
		f, err := open(l.path)
		if err != nil {
			return err
		}
		l.f = f
	}
	if !full(l.f, size) {
		return nil
	}
	lock, err := disk.Lock(l.path + ".lock")
	if err != nil {
		return nil // keep writing to this file
	}
	defer lock.Close()
	if same(l.f, l.path) && os.Rename(l.path, Old(l.path)) != nil {
		return nil // on Windows, a virus scanner may have it open
	}
	f, err := open(l.path)
	if err != nil {
		return nil
	}
	l.f.Close()
	l.f = f
	return nil
}

// full reports whether a regular file has no room for that many bytes.
func full(f *os.File, size int64) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular() && info.Size() > 0 && info.Size()+size > MaxSize
}

// same reports whether the file is still the one at path.
func same(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(open, now)
}

// Close closes the log. A later write opens it again.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// maxRead limits one read of a file, in bytes.
const maxRead = 64 << 20

// pollInterval is the time between two looks at a log.
const pollInterval = 300 * time.Millisecond

// Show writes to w the last lines of the log at path and the one before it. With follow, it
// continues with what is appended, until ctx ends, and waits for a log that does not exist.
// Without, that is [fs.ErrNotExist].
func Show(ctx context.Context, w io.Writer, path string, lines int, follow bool) error {
	f, text, err := readAll(path)
	if f != nil {
		defer func() { f.Close() }()
	}
	if err != nil && !(follow && errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if old, err := disk.ReadFile(Old(path), maxRead); err == nil {
		text = append(old, text...)
	}
	if _, err := w.Write(tail(text, lines)); err != nil || !follow {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		renamed := f == nil || !same(f, path) // before the rest is read
		if f != nil {
			if _, err := io.Copy(w, f); err != nil {
				return err
			}
		}
		if renamed {
			if newer, text, err := readAll(path); err == nil {
				if f != nil {
					f.Close()
				}
				f = newer
				if _, err := w.Write(text); err != nil {
					return err
				}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// readAll opens a log and reads what it holds.
func readAll(path string) (*os.File, []byte, error) {
	f, err := disk.OpenShared(path, os.O_RDONLY|disk.NonBlock, 0)
	if err != nil {
		return nil, nil, err
	}
	text, err := disk.ReadOpen(f, maxRead)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, text, nil
}

// tail returns the last lines of a text.
func tail(text []byte, lines int) []byte {
	at := len(text)
	for ; lines > 0 && at > 0; lines-- {
		at = bytes.LastIndexByte(text[:at-1], '\n') + 1
	}
	return text[at:]
}
