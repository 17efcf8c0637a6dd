package ide

import (
	"os"
	"slices"
	"strings"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/asking"
	"pollux/internal/inputline"
	"pollux/internal/sys/proc"
)

// A Launch defines how to start an agent in a terminal, connected to a companion.
// Only Name, Title, Package and Prompt must be set.
type Launch struct {
	Name    string // of the command
	Title   string // the agent's name, for people
	Package string // the npm package that contains it
	// Unset are variables that the agent must not inherit.
	Unset []string
	// Env returns more variables, as KEY=VALUE, given the companion's variables.
	Env func(companion map[string]string) []string
	// Args come before the user's arguments.
	Args []string
	// Asking returns whether the agent asks before it changes a file; it does if nil.
	Asking func(asking.Start) asking.Mode
	// Manual is how the user makes a running agent ask again, if an answer or a key can stop
	// it from asking. It completes "To review its next change, ...".
	Manual string
	// Hint returns what to tell the user before the agent starts, given the
	// arguments; nothing if empty.
	Hint func(args []string) string
	// Connect says what to do if the agent does not connect. If it is empty, Hint does.
	Connect string
	// Prompt is that of [companion.AgentKind].
	Prompt func(p editor.PromptParams, roots []string) editor.Prompt
	// NoReview is set if the agent asks about changes only in its own terminal.
	NoReview bool
	// Hides is set if the agent hides what the terminal shows before it starts.
	Hides bool
	// InputLine is that of [companion.AgentKind].
	InputLine inputline.Finder
	// IDEMode is set if the agent connects only if Gemini CLI's settings turn on
	// IDE mode.
	IDEMode bool
	// RestartCode is the exit code with which the agent asks to be started again; 0
	// if it never does.
	RestartCode int
	// Remote is set if the agent can connect to a companion on another machine.
	Remote bool

	// variables are the companion's variables that the agent receives.
	variables []string
}

// Launches returns the agents that Pollux can start. The first one is the default.
func Launches() (all []Launch) {
	for _, p := range protocols {
		all = append(all, p.launches()...)
	}
	return all
}

// launches returns the agents of the protocol, with the variables that they receive.
func (p Protocol) launches() []Launch {
	all := slices.Clone(p.Launches)
	for i := range all {
		all[i].variables = append([]string{editor.EnvSocket}, p.EnvNames...)
	}
	return all
}

// LaunchOf returns how to start a command, which may have a path and an extension.
// A command that is not in the table may be a wrapper: it is started as the first
// agent is, and receives the variables for all agents.
func LaunchOf(command string) Launch {
	name := proc.CommandName(command)
	all := Launches()
	if i := slices.IndexFunc(all, func(l Launch) bool { return l.Name == name }); i >= 0 {
		return all[i]
	}
	wrapper := all[0]
	wrapper.Name, wrapper.Title, wrapper.Package, wrapper.variables = name, name, "", EnvNames()
	wrapper.Asking = nil
	wrapper.IDEMode = false
	wrapper.Hint = func([]string) string {
		return "if " + name + " starts Gemini CLI, and that does not connect, type /ide enable in it, once, then restart it"
	}
	return wrapper
}

// Unconnected is [companion.Config].Unconnected while the agent runs.
func (l Launch) Unconnected() string {
	next := l.Connect
	if next == "" && l.Hint != nil {
		next = l.Hint(nil)
	}
	return l.Title + " has not connected yet; " + next
}

// Mode returns whether the agent asks before it changes a file if it starts with the
// arguments in a directory, the working directory if empty.
func (l Launch) Mode(args []string, dir string) asking.Mode {
	if l.Asking == nil {
		return asking.Mode{}
	}
	if dir == "" {
		dir, _ = os.Getwd()
	}
	return l.Asking(asking.Start{Args: args, Dir: dir, Getenv: os.Getenv})
}

// silent implements [companion.AgentKind].
func (l Launch) silent(p companion.Process) string {
	args, env := proc.CommandLine(p.PID)
	if l.Asking == nil || len(args) == 0 || p.Dir == "" {
		return ""
	}
	getenv := func(key string) string {
		for _, kv := range env {
			if value, ok := strings.CutPrefix(kv, key+"="); ok {
				return value
			}
		}
		return ""
	}
	return l.Asking(asking.Start{Args: args[1:], Dir: p.Dir, Getenv: getenv}).Warning(l.Title)
}

// Environ returns the environment in which the agent starts: environ, changed for
// the companion that has set the variables in the map.
func (l Launch) Environ(environ []string, companion map[string]string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(l.Unset, name)
	})
	for name, value := range companion {
		if slices.Contains(l.variables, name) {
			env = append(env, name+"="+value)
		}
	}
	if l.Env != nil {
		env = append(env, l.Env(companion)...)
	}
	return env
}
