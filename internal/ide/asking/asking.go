// Package asking says whether an agent asks before it changes a file. The package of an
// agent reads the agent's arguments, variables and settings; docs/CODING-AGENTS.md has the
// findings.
package asking

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/jsontoml"
	"pollux/internal/sys/disk"
)

// A Start is how an agent starts, or has started.
type Start struct {
	// Args are the user's arguments. Those of a running agent may begin with its program.
	Args []string
	// Dir is the agent's working directory.
	Dir    string
	Getenv func(string) string
}

// A Mode says what an agent does before it changes a file. The zero Mode asks.
type Mode struct {
	// Args and Env, as KEY=VALUE, make an agent ask if its user has chosen no mode. They
	// are empty if the user has, or if the agent asks anyway.
	Args, Env []string
	// Silent, if not empty, names what lets the agent write without asking, such as
	// "auto mode (--permission-mode)". Ask then says how to change that.
	Silent, Ask string
}

// Warning tells the user of an agent, given its name, that it does not ask, and what to do;
// "" if it asks.
func (m Mode) Warning(title string) string {
	if m.Silent == "" {
		return ""
	}
	return title + " changes files without asking: " + m.Silent + ". To review its changes, " + m.Ask
}

// Finding is [Mode.Warning] for doctor, given the agent's command, too: what is wrong with
// an agent that starts so, and what to do.
func (m Mode) Finding(title, command string) (text, next string) {
	text = title + " changes files without asking: " + m.Silent
	if len(m.Args)+len(m.Env) > 0 {
		return "unless `pollux run` starts it, " + text, "pollux run -- " + command + ", or " + m.Ask
	}
	return text, m.Ask
}

// Flag returns the value of the last of the flags with one of the names, as in
// "--name value" and "--name=value", and reports whether there is one.
func (s Start) Flag(names ...string) (value string, set bool) {
	for i, arg := range s.Args {
		if arg == "--" {
			break
		}
		name, text, inline := strings.Cut(arg, "=")
		if !slices.Contains(names, name) {
			continue
		}
		if value = text; !inline && i+1 < len(s.Args) {
			value = s.Args[i+1]
		}
		set = true
	}
	return value, set
}

// Command reports whether the first argument is one of the agent's commands.
func (s Start) Command(names ...string) bool {
	return len(s.Args) > 0 && slices.Contains(names, s.Args[0])
}

// Home returns the directory that a variable names, or the one with that name in the
// user's home.
func (s Start) Home(variable, name string) string {
	if dir := s.Getenv(variable); variable != "" && dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, name)
}

// Root returns the directory of the repository that contains the working directory, or
// the working directory.
func (s Start) Root() string {
	for dir := s.Dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return s.Dir
		}
	}
}

// FromProject reports whether a file of settings is in the project. It may have come with
// the repository: then its user has chosen nothing.
func (s Start) FromProject(path string) bool {
	const slash = string(filepath.Separator)
	home, err := os.UserHomeDir()
	root := s.Root() + slash
	return err == nil && strings.HasPrefix(path, root) && !strings.HasPrefix(home+slash, root)
}

// maxFile bounds a file of settings, in bytes.
const maxFile = 4 << 20

// ReadFile returns what a file of settings holds.
func ReadFile(path string) ([]byte, error) { return disk.ReadFile(path, maxFile) }

// Read reads a file of settings in JSON, which may have comments. A file that does not
// exist leaves v unchanged. The error names the file.
func Read(path string, v any) error {
	data, err := ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = jsontoml.Decode(data, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, disk.Cause(err))
	}
	return nil
}
