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

// A TempDir holds the directories of an agent's processes. It stays locked while
// its owner runs, so that a later owner can remove the directories of a killed
// one.
type TempDir struct {
	Path string
	lock *os.File // nil if the file system has no locks
}

const (
	tempPrefix = "pollux-bridge-"
	// lockName is the file in a TempDir that its owner keeps locked.
	lockName = "lock"
	// staleTTL is the age at which a directory without a lock is removed. It is
	// longer than any run, because the owner may be invisible: it may run in a
	// container that shares the temporary directory.
	staleTTL = time.Hour
)

var staleDirs = sys.Leftovers{
	Pattern: tempPrefix + "*", Type: fs.ModeDir, Lock: lockName, MinAge: staleTTL, PID: pidOf,
}

// pidOf returns the PID in the name of a TempDir.
func pidOf(name string) int {
	pid, _, _ := strings.Cut(strings.TrimPrefix(name, tempPrefix), "-")
	n, _ := strconv.Atoi(pid)
	return n
}

// NewTempDir removes what killed processes left behind and creates a directory.
func NewTempDir() (*TempDir, error) {
	staleDirs.Remove(os.TempDir())
	path, err := sys.MkdirTemp("", fmt.Sprintf("%s%d-", tempPrefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("no temporary directory (%w): set %s to a directory that you can write to", err, sys.TempVars)
	}
	lock, _ := sys.Lock(filepath.Join(path, lockName))
	return &TempDir{path, lock}, nil
}

// Make creates a directory for one process.
func (d *TempDir) Make(pattern string) (string, error) {
	// A cleaner of old temporary files may have removed it.
	if err := sys.PrivateTempDir(d.Path); err != nil {
		return "", err
	}
	return os.MkdirTemp(d.Path, pattern)
}

// Close removes the directory.
func (d *TempDir) Close() error {
	if d.lock != nil {
		d.lock.Close() // Windows does not remove open files
	}
	return os.RemoveAll(d.Path)
}
