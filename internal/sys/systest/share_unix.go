//go:build unix

package systest

import "os"

// Share gives all rights for a file or directory to all users.
func Share(path string) error { return os.Chmod(path, 0o777) }
