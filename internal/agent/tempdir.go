package agent

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A TempDir holds the directories of an agent's processes. It stays locked while
// its owner runs. If the owner was killed, the next call of [NewTempDir] with that name
// removes it.
type TempDir struct {
	Path string
	lock *os.File // nil if the file system has no locks
}

const (
	// lockName is the file in a TempDir that its owner keeps locked.
	lockName = "lock"
	// staleTTL is the age at which a directory without a lock is removed. It is
	// longer than any run, because the owner may be invisible: it may run in a
	// container that shares the temporary directory.
	staleTTL = time.Hour
)

// NewTempDir creates a directory whose name begins with "pollux-" and the given name, in
// the directory for temporary files. It removes those with that name that killed processes
// left behind.
func NewTempDir(name string) (*TempDir, error) {
	prefix := "pollux-" + name + "-"
	stale := disk.Leftovers{
		Pattern: prefix + "*", Type: fs.ModeDir, Lock: lockName, MinAge: staleTTL, InUse: proc.InUse(func(name string) int {
			pid, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
			n, _ := strconv.Atoi(pid)
			return n
		}),
	}
	stale.Remove(os.TempDir())
	path, err := disk.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("no temporary directory (%w): set %s to a directory that you can write to", err, disk.TempVars)
	}
	lock, _ := disk.Lock(filepath.Join(path, lockName))
	return &TempDir{path, lock}, nil
}

// tmpName is the directory for temporary files in a process's directory.
const tmpName = "tmp"

// Make creates a directory for one process, and in it the directory for temporary files.
func (d *TempDir) Make(pattern string) (string, error) {
	// A cleaner of old temporary files may have removed it.
	if err := disk.PrivateTempDir(d.Path); err != nil {
		return "", err
	}
	path, err := os.MkdirTemp(d.Path, pattern)
	if err == nil {
		err = os.Mkdir(filepath.Join(path, tmpName), 0o700)
	}
	return path, err
}

// Close removes the directory.
func (d *TempDir) Close() error {
	if d.lock != nil {
		d.lock.Close() // Windows does not remove open files
	}
	return disk.RemoveDir(d.Path, lockName)
}
