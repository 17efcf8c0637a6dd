//go:build unix

package disk

import (
	"io/fs"
	"os"
)

// OpenShared is [os.OpenFile] for a file that other processes, and this one, may rename or
// remove while it is open.
func OpenShared(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, mode)
}
