package disk

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// On Windows nothing worked in a directory that a junction leads to, or below a volume
// without a drive letter, and an agent below a junction, as Scoop makes, was not found.
func TestLinkWalk(t *testing.T) {
	root := systest.Abs("/")
	abs := func(path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
	links := map[string]string{
		abs("dev"):           abs("data/projects"),
		abs("data/projects"): abs("data/code"),
		abs("relative"):      "data",
		abs("loop"):          abs("loop/x"),
		abs("Home/rooted"):   filepath.FromSlash("/data"),
	}
	files := map[string]string{} // by their names in lower case
	for _, path := range []string{
		"dev", "data", "data/projects", "data/code", "data/code/App", "data/code/App/Main.go", "relative", "loop", "Home", "Home/rooted", "volume", "volume/x",
	} {
		files[strings.ToLower(abs(path))] = abs(path)
	}
	for path, want := range map[string]string{
		"dev":                  "data/code",
		"dev/app/main.GO":      "data/code/App/Main.go",
		"DATA/Code":            "data/code",
		"relative/code":        "data/code",
		"home/rooted/projects": "data/code",
		"volume/x":             "volume/x",
		"dev/../data":          "data", // as Windows reads it
		"":                     "",
		"dev/none":             "does not exist",
		"loop":                 "too many links",
	} {
		w := linkWalk{
			target: func(path string) (string, error) {
				file, ok := files[strings.ToLower(path)]
				if !ok {
					return "", fs.ErrNotExist
				}
				return links[file], nil
			},
			name: func(path string) (string, error) { return filepath.Base(files[strings.ToLower(path)]), nil },
		}
		got, err := w.real(abs(path))
		switch want {
		case "does not exist":
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		case "too many links":
			if !errors.Is(err, errLinks) {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		default:
			if got != abs(want) || err != nil {
				t.Errorf("%s: %q, %v, want %s", path, got, err, want)
			}
		}
	}
}

func TestEvalSymlinks(t *testing.T) {
	dir, err := EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	systest.WriteFile(t, file, "")
	for _, path := range []string{file, filepath.Join(dir, ".", "file"), dir} {
		if got, err := EvalSymlinks(path); err != nil || got != filepath.Clean(path) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "none", "file")} {
		if got, err := EvalSymlinks(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if got, err := EvalSymlinks(filepath.Join(file, "below")); err == nil {
		t.Errorf("below a file: %q", got)
	}
}
