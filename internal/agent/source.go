package agent

import (
	"os"
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
	if e == nil {
		return os.Getenv(name)
	}
	value := ""
	for _, kv := range e {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			value = v // the last one counts
		}
	}
	return value
}
