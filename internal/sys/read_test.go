package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// On Windows, a file in place of a directory looked like a directory that does not exist:
// `pollux usage` said that there were no calls.
func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if entries, err := ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := ReadDir(file); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file: %v", err)
	}
	if _, err := ReadDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
}
