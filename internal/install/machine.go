package install

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"pollux/internal/sys/disk"
)

// A machine knows where other programs look for their settings.
type machine struct {
	goos   string
	getenv func(name string) string
	exists func(path string) bool
	glob   func(pattern string) []string
}

// here returns the machine that this process runs on.
func here() machine {
	return machine{runtime.GOOS, os.Getenv, disk.Exists, func(pattern string) []string {
		found, _ := filepath.Glob(pattern)
		return found
	}}
}

func (m machine) isAbs(path string) bool {
	if m.goos == "windows" && runtime.GOOS != "windows" { // in tests
		return len(path) > 2 && path[1] == ':'
	}
	return filepath.IsAbs(path)
}

// home returns the user's home directory, as [os.UserHomeDir] does.
func (m machine) home() (string, error) {
	name := "HOME"
	if m.goos == "windows" {
		name = "USERPROFILE"
	}
	if dir := m.getenv(name); dir != "" {
		return dir, nil
	}
	return "", errors.New("no home directory: set " + name)
}

// unixHome returns the home directory of programs that come from Unix. On Windows it is
// HOME, otherwise the first of others that is an absolute path.
func (m machine) unixHome(others ...string) (string, error) {
	if m.goos == "windows" {
		for _, dir := range append([]string{m.getenv("HOME")}, others...) {
			if m.isAbs(dir) {
				return dir, nil
			}
		}
	}
	return m.home()
}

// dir returns the directory that an environment variable names, or one below the home
// directory.
func (m machine) dir(variable, fallback string) (string, error) {
	if dir := m.getenv(variable); m.isAbs(dir) {
		return dir, nil
	}
	home, err := m.home()
	return filepath.Join(home, filepath.FromSlash(fallback)), err
}

// local and roaming return the directories for the data of programs on Windows.
func (m machine) local() (string, error)   { return m.dir("LOCALAPPDATA", "AppData/Local") }
func (m machine) roaming() (string, error) { return m.dir("APPDATA", "AppData/Roaming") }

// desktop returns the directory of desktop programs' settings, as [os.UserConfigDir]
// does.
func (m machine) desktop() (string, error) {
	if m.goos == "darwin" {
		home, err := m.home()
		return filepath.Join(home, "Library", "Application Support"), err
	}
	return m.config()
}

// config returns the directory of a terminal program's settings.
func (m machine) config() (string, error) {
	if m.goos == "windows" {
		return m.roaming()
	}
	return m.dir("XDG_CONFIG_HOME", ".config")
}

// below returns a path below a directory that may be unknown.
func below(dir string, err error, elem ...string) (string, error) {
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.FromSlash(strings.Join(elem, "/"))), nil
}

// under returns a function that returns a path below a directory.
func under(dir func(machine) (string, error), elem ...string) func(machine) (string, error) {
	return func(m machine) (string, error) {
		d, err := dir(m)
		return below(d, err, elem...)
	}
}
