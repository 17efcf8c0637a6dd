// Package paths resolves paths and decides which directory contains which path.
package paths

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Real returns the path with the symbolic links of its existing part resolved, and that
// part as the disk spells it. The part that does not exist stays as it is.
func Real(path string) string {
	if local.windows() {
		path = plain(path)
	}
	return thisSpeller().real(path)
}

// Existing returns the path of a file without symbolic links, as the disk spells it: all
// spellings of an absolute path that lead to one file give one path. The error is that of
// [disk.EvalSymlinks].
func Existing(path string) (string, error) { return thisSpeller().existing(path) }

func (d *speller) real(path string) string {
	path = filepath.Clean(path)
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if resolved, err := d.existing(dir); err == nil {
			return filepath.Join(resolved, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// Missing returns the directories below dir that do not exist and that path needs, the
// deepest first. It reads the disk.
func Missing(dir, path string) (dirs []string) {
	for d := filepath.Dir(path); d != dir && d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dirs = append(dirs, d)
	}
	return dirs
}

// Short returns a path for people, with ~ for the home directory.
func Short(path string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	for _, home := range []string{home, Real(home)} {
		if rel, ok := Rel(home, path); ok {
			return filepath.Join("~", rel)
		}
	}
	return path
}

// Contains reports whether path is root or below it. See [Rel] for what it
// compares.
func Contains(root, path string) bool {
	_, ok := Rel(root, path)
	return ok
}

// LeadsOut returns the first of some files that is outside of dir when links are followed, or "".
func LeadsOut(dir string, files ...string) string {
	root := Real(dir)
	for _, file := range files {
		if !Contains(root, Real(file)) {
			return file
		}
	}
	return ""
}

// In returns the path of a file inside one of the roots, which are real paths: path itself, or
// its real path if only a symbolic link outside the roots leads there, or if path is
// another spelling of it. ok is false if the file is outside the roots. In reads the disk.
func In(roots []string, path string) (name string, ok bool) {
	contained := func(path string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return Contains(root, path) })
	}
	actual := Real(path)
	if !contained(actual) {
		return "", false
	}
	if !contained(path) || Same(path, actual) {
		path = actual
	}
	return path, true
}

// Same reports whether two paths or names differ at most in their spelling: not at all on
// Linux, in the case of letters on Windows and macOS, and in the form of accents on macOS.
func Same(a, b string) bool { return a == b || local.key(a) == local.key(b) }

// Key returns a form of a path or of a name that is equal for all that are the [Same].
func Key(path string) string { return local.key(path) }

// Rel returns path relative to root, in path's own spelling and "." for root
// itself. ok is false if path is neither root nor below it. Both must be
// absolute. On Windows, Rel accepts slashes and returns backslashes. Rel compares
// names only: pass both through [Real] first where a symbolic link must not lead
// out of root.
//
// macOS and Windows ignore case, and so does Rel there, on all volumes. A
// volume can be set up otherwise, but a probe would need the disk for each
// question. Gemini CLI decides in the same way: it compares the names in lower
// case, so \u017F is not an s. On macOS, Rel also ignores whether an accent is a
// separate character, as all its volumes do.
func Rel(root, path string) (rel string, ok bool) { return local.rel(root, path) }

// Foreign returns what [Rel] does, but for paths of another system: Windows if
// root has a drive or is a UNC path, else Unix. The result has the separators
// of that system.
func Foreign(root, path string) (rel string, ok bool) { return foreign(root).rel(root, path) }

// Move returns where a path is if from, which contains it, is at to. Each of from and to may be
// of another system, as for [Foreign]. ok is false if from does not contain the path.
func Move(path, from, to string) (moved string, ok bool) {
	rel, ok := Foreign(from, path)
	if !ok || rel == "." {
		return to, ok
	}
	separator := foreign(to).separator
	rel = strings.ReplaceAll(rel, foreign(from).separator, separator)
	return strings.TrimSuffix(to, separator) + separator + rel, true
}

// foreign returns the style of an absolute path of any system.
func foreign(path string) style {
	if IsWindows(path) {
		return style{separator: `\`, foldCase: true}
	}
	return style{separator: "/"}
}

// IsWindows reports whether an absolute path is one of Windows, on any system.
func IsWindows(path string) bool {
	return len(path) > 2 && path[1] == ':' && (path[2] == '\\' || path[2] == '/') || strings.HasPrefix(path, `\\`)
}

// A style is how a system writes and compares paths.
type style struct {
	separator string
	foldCase  bool
	normalize bool
}

var local = style{
	string(filepath.Separator), runtime.GOOS == "darwin" || runtime.GOOS == "windows", runtime.GOOS == "darwin",
}

func (s style) rel(root, path string) (string, bool) {
	above, below := s.parts(root), s.parts(path)
	if len(below) < len(above) {
		return "", false
	}
	for i, part := range above {
		if s.key(part) != s.key(below[i]) {
			return "", false
		}
	}
	rest := below[len(above):]
	if len(rest) == 0 {
		return ".", true
	}
	return strings.Join(rest, s.separator), true
}

// key returns the form of a name that the system compares.
func (s style) key(name string) string {
	if s.normalize {
		name = norm.NFD.String(name)
	}
	if s.foldCase {
		return strings.ToLower(name)
	}
	return name
}

// parts returns the names of a path. It resolves "." and "..", and ignores
// empty names, other than those at the start that make a path absolute.
func (s style) parts(path string) []string {
	if s.windows() {
		path = plain(strings.ReplaceAll(path, "/", `\`))
	}
	var parts []string
	unc := s.windows() && strings.HasPrefix(path, `\\`)
	for i, part := range strings.Split(path, s.separator) {
		switch {
		case part == "" && i > 0 && !(unc && i == 1), part == ".":
		case part == ".." && len(parts) > 1:
			parts = parts[:len(parts)-1]
		case part == "..":
			if len(parts) == 0 || parts[0] != "" {
				parts = append(parts, part)
			}
		default:
			parts = append(parts, part)
		}
	}
	return parts
}
