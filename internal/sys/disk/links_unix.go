//go:build unix

package disk

import "path/filepath"

func evalSymlinks(path string) (string, error) { return filepath.EvalSymlinks(path) }
