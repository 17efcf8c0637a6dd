package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A Source says for whom an agent runs: its program and its environment. A process
// serves requests from one source only, so no client uses the credentials of another.
type Source struct {
	// Command is the agent's program: a path, or a name on the PATH of Env. If it is
	// empty, the agent's default command is used.
	Command string
	// Env is the environment that the agent's own is made from.
	Env Env
}

// An Env is an environment, as "name=value". nil is the environment of this process.
type Env []string

// List returns the environment as "name=value".
func (e Env) List() []string {
	if e == nil {
		return os.Environ()
	}
	return e
}

// Get returns the value of a variable, or "".
func (e Env) Get(name string) string {
	value, _ := e.Lookup(name)
	return value
}

// Lookup returns the value of a variable, and whether it is set.
func (e Env) Lookup(name string) (value string, set bool) {
	if e == nil {
		return os.LookupEnv(name)
	}
	for _, kv := range e {
		n, v, ok := strings.Cut(kv, "=")
		if ok && (n == name || runtime.GOOS == "windows" && strings.EqualFold(n, name)) {
			value, set = v, true // the last one counts
		}
	}
	return value, set
}

// Only returns the variables whose names pass, sorted. Of several values of one
// variable, it returns the last one, which counts. The result is never nil, which
// would be the environment of this process.
func (e Env) Only(pass func(name string) bool) []string {
	values := make(map[string]string)
	for _, kv := range e.List() {
		if name, _, ok := strings.Cut(kv, "="); ok && pass(name) {
			if runtime.GOOS == "windows" {
				name = strings.ToUpper(name)
			}
			values[name] = kv
		}
	}
	only := slices.AppendSeq([]string{}, maps.Values(values))
	slices.Sort(only)
	return only
}

// HomeDir returns the user's home directory, as [os.UserHomeDir] does.
func (e Env) HomeDir() (string, error) {
	if e == nil {
		return os.UserHomeDir()
	}
	name := "HOME"
	if runtime.GOOS == "windows" {
		name = "USERPROFILE"
	}
	if dir := e.Get(name); dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("%s is not set", name)
}

// LookPath returns the path of a program, as [exec.LookPath] does. In the
// environment of another process, relative paths have no meaning: a relative
// program is an error, and relative directories of the PATH are skipped.
func (e Env) LookPath(program string) (string, error) {
	if e == nil || filepath.IsAbs(program) {
		path, err := exec.LookPath(program)
		if !errors.Is(err, exec.ErrDot) {
			return path, err
		}
		// Windows looks in the working directory first. A program there is not run, and
		// does not hide another one.
	}
	if program == "" || filepath.Base(program) != program {
		return "", &exec.Error{Name: program, Err: errors.New("it is not an absolute path")}
	}
	for _, dir := range filepath.SplitList(e.Get("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
}
