//go:build unix && !linux

package disk

import "os"

func shared(string) bool { return false }

// hasAttributes returns false: macOS gives nearly every file attributes that do
// not matter.
func hasAttributes(*os.File) bool { return false }
