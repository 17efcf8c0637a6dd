// Package disk reads, replaces and locks files safely, keeps files private to the user, and
// names the directories of Pollux.
package disk

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// StateDir returns the directory for what must survive a restart (the journal):
// $XDG_STATE_HOME/pollux or ~/.local/state/pollux on Unix, the local application
// data on Windows. The directory may not exist.
func StateDir() (string, error) {
	if d := os.Getenv("POLLUX_STATE_DIR"); d != "" {
		return filepath.Abs(d)
	}
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "pollux"), nil
	}
	if runtime.GOOS == "windows" {
		d, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no directory for application data (%w): set %s or POLLUX_STATE_DIR", err, DataVar)
		}
		return filepath.Join(d, "pollux", "state"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory (%w): set HOME or POLLUX_STATE_DIR", err)
	}
	return filepath.Join(home, ".local", "state", "pollux"), nil
}

// RuntimeDir returns the directory for sockets:
// $XDG_RUNTIME_DIR/pollux, or pollux-UID in the temporary directory, or in /tmp if
// its path is too long for sockets there. On Windows a hash of the SID replaces the UID,
// since users can share that directory.
// RuntimeDir creates the directory and makes it private to the user. It fails if
// the directory belongs to another user. $POLLUX_RUNTIME_DIR replaces it; its
// length does not matter.
func RuntimeDir() (string, error) {
	if dir := os.Getenv("POLLUX_RUNTIME_DIR"); dir != "" {
		return dir, PrivateTempDir(dir)
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) && usable(d) {
		if dir := filepath.Join(d, "pollux"); len(dir) <= maxRuntimeDir {
			return dir, PrivateTempDir(dir)
		}
	}
	id, err := userID()
	if err != nil {
		return "", fmt.Errorf("the user ID is unknown (%w): set POLLUX_RUNTIME_DIR", err)
	}
	dir := filepath.Join(os.TempDir(), "pollux-"+id)
	if len(dir) > maxRuntimeDir {
		dir = filepath.Join("/tmp", "pollux-"+id)
	}
	return dir, PrivateTempDir(dir)
}

// ShortTempDir creates a temporary directory like [MkdirTemp], in /tmp if the path of a
// socket would be too long in the temporary directory.
func ShortTempDir(prefix string) (string, error) {
	const digits = 10 // that os.MkdirTemp adds
	if len(os.TempDir())+1+len(prefix)+digits <= maxRuntimeDir {
		return MkdirTemp("", prefix)
	}
	return MkdirTemp("/tmp", prefix)
}

func usable(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && own(dir, info)
}

// Shared reports whether a directory may be shared with the host of this
// container or with another machine. PIDs and ports in its files may then mean
// nothing here.
func Shared(dir string) bool { return shared(dir) }

// FreeSpace returns how many bytes the user may still write in dir.
func FreeSpace(dir string) (int64, error) { return freeSpace(dir) }

// DiskPath returns the path of a file without symbolic links, as the disk spells it. For a
// file with several hard links it may be any of their paths. Systems other than macOS
// return [errors.ErrUnsupported].
func DiskPath(path string) (string, error) { return diskPath(path) }

// Stamp returns what distinguishes two states of a file better than its size and
// modification time: the time of the last change of its content or properties,
// in nanoseconds, which no program can set back, and the number of the file. Both
// are zero on systems without them.
func Stamp(info fs.FileInfo) (changed int64, id uint64) { return stamp(info) }
