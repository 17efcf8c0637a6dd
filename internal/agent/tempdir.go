package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pollux/internal/sys"
)

// A TempDir holds the directories of an agent's processes. It is locked while
// its owner lives, so that the next one can remove what a killed one left.
type TempDir struct {
	Path string
	lock *os.File // nil if the file system has no locks
}

const (
	tempPrefix = "pollux-bridge-"
	// lockName is the file in a TempDir that its owner holds locked.
	lockName = "lock"
	// staleTimeout is the age at which a directory without a lock is removed. It is
	// longer than any run, because its process may be invisible: in a container
	// with the same temporary directory.
	staleTimeout = time.Hour
)

// NewTempDir removes what killed processes left behind, and makes a directory.
func NewTempDir() (*TempDir, error) {
	removeStale()
	path, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", tempPrefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("no temporary directory (%w): set TMPDIR to a directory that you can write to", err)
	}
	lock, _ := sys.Lock(filepath.Join(path, lockName))
	return &TempDir{path, lock}, nil
}

// Make makes a directory for one process.
func (d *TempDir) Make(pattern string) (string, error) {
	// A cleaner of old temporary files may have removed it.
	if err := sys.PrivateDir(d.Path); err != nil {
		return "", err
	}
	return os.MkdirTemp(d.Path, pattern)
}

// Close removes the directory.
func (d *TempDir) Close() error {
	if d.lock != nil {
		d.lock.Close() // Windows removes no open file
	}
	return os.RemoveAll(d.Path)
}

// removeStale removes the directories of processes that have ended.
func removeStale() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && sys.Own(info) && stale(dir, info) {
			os.RemoveAll(dir)
		}
	}
}

func stale(dir string, info fs.FileInfo) bool {
	lock := filepath.Join(dir, lockName)
	if sys.Abandoned(lock) {
		return true
	}
	if held, err := os.Lstat(lock); err == nil && held.Size() > 0 {
		return false
	}
	pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), tempPrefix), "-")
	n, err := strconv.Atoi(pid)
	return err == nil && !sys.Alive(n) && time.Since(info.ModTime()) > staleTimeout
}
