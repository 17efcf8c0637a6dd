package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// A repository can hold a sparse file of many gigabytes where a settings file is expected.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(path("text"), []byte("12345"), 0o600),
		os.WriteFile(path("sparse"), nil, 0o600),
		os.Truncate(path("sparse"), 20<<30),
	); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path  string
		limit int64
		want  error
	}{
		{path("text"), 5, nil},
		{path("text"), 4, ErrTooLarge},
		{path("sparse"), 1 << 20, ErrTooLarge},
		{dir, 5, ErrNotRegular},
		{path("missing"), 5, fs.ErrNotExist},
		{os.DevNull, 5, ErrNotRegular},
	} {
		data, err := ReadFile(test.path, test.limit)
		if !errors.Is(err, test.want) || err == nil && string(data) != "12345" {
			t.Errorf("ReadFile(%s, %d) = %q, %v; want %v", test.path, test.limit, data, err, test.want)
		}
		if err != nil && !strings.Contains(err.Error(), test.path) {
			t.Errorf("the error does not name the file: %v", err)
		}
	}
}

// On Windows, a file in place of a directory looked like a directory that does not exist:
// `pollux usage` said that there were no calls.
func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	systest.WriteFile(t, file, "")
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

func TestReadFileFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	systest.WriteFile(t, filepath.Join(dir, "text"), "12345")
	link := filepath.Join(dir, "link")
	systest.Link(t, "text", link)
	if data, err := ReadFile(link, 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
}
