package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math"

	"golang.org/x/sys/windows"
)

// Variables to set, as messages name them: TempVars for the temporary directory, HomeVar for
// the home directory, and DataVar for the base of [StateDir].
const (
	TempVars = "TEMP and TMP" // Node.js reads TEMP first, Go reads TMP
	HomeVar  = "USERPROFILE"
	DataVar  = "LOCALAPPDATA"
)

// userID returns a part of a hash of the SID. The whole SID would make the path of a
// socket too long.
func userID() (string, error) {
	user, err := CurrentUser()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(user.String()))
	return hex.EncodeToString(sum[:6]), nil
}

func freeSpace(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return int64(free), nil
}

// maxRuntimeDir limits the path of the directory of sockets: Windows has no limit.
const maxRuntimeDir = math.MaxInt
