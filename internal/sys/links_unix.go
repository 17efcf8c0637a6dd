//go:build unix

package sys

import "path/filepath"

func evalSymlinks(path string) (string, error) { return filepath.EvalSymlinks(path) }
