//go:build unix

package disk

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// Variables to set, as messages name them: TempVars for the temporary directory, HomeVar for
// the home directory, and DataVar for the base of [StateDir].
const (
	TempVars = "TMPDIR"
	HomeVar  = "HOME"
	DataVar  = "HOME"
)

func userID() (string, error) { return strconv.Itoa(os.Getuid()), nil }

func freeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// maxRuntimeDir is the longest path of the directory of sockets in bytes. It leaves room for
// their names, such as connect-4194304-0a1b2c.sock, in the path of a socket: 103 bytes on
// macOS, 107 on Linux.
const maxRuntimeDir = len(syscall.RawSockaddrUnix{}.Path) - 1 - 28
