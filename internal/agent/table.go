package agent

import (
	"slices"
	"strings"
)

// An Agent is a row of the table of agents. It holds all that Pollux knows about one agent that
// it can ask: how to find it, how to ask it, and how to explain what it says. Its functions may
// be called from several goroutines. All fields are required, unless their comment says otherwise.
type Agent struct {
	// Name is the agent's name in settings and keys, such as "gemini".
	// DisplayName is its name for people and models, such as "Gemini CLI". Model
	// is the name that people use for its model, such as "Gemini".
	Name, DisplayName, Model string
	// Provider is the name of the model's provider in the semantic conventions of
	// OpenTelemetry (gen_ai.provider.name).
	Provider string
	// Clients are prefixes: the agent's names as an MCP client begin with one.
	Clients []string
	// Withholds says that the agent as an MCP client keeps variables from its servers, for each
	// kind of failure that may be due to that, and what to do. It may be empty.
	Withholds map[Kind]string
	// ExampleModel is a valid model name for use in messages. FallbackModel
	// answers if the default model is overloaded. It may be empty.
	ExampleModel, FallbackModel string

	Finder
	Driver
	Explainer
}

// A Definition is an agent that the user's settings define. Pollux asks it over the Agent Client
// Protocol.
type Definition struct {
	Name string
	// Command is its command line. The program is a name on the PATH or an absolute path.
	Command []string
	// Writable are absolute paths of directories and files that it may change, apart from
	// its own directories. Variables are the names of environment variables that it receives
	// apart from those whose names start with its own.
	Writable, Variables []string
}

// DepthVar is set in the environment of an agent that Pollux asks.
const DepthVar = "POLLUX_ASKED"

// IsClient reports whether an MCP client with this name is the agent itself.
func (a *Agent) IsClient(name string) bool {
	return name != "" && slices.ContainsFunc(a.Clients, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// WithholdsUnnamed is [Agent.Withholds] of an agent that passes keys and proxy settings on only if
// its settings name them. client is its name for pollux install bridge.
func WithholdsUnnamed(title, client string) map[Kind]string {
	text := title + " passes keys and proxy settings of your shell on to Pollux only if its settings name them: " +
		"run `pollux install bridge " + client + "` in a terminal where they are set, and restart " + title
	return map[Kind]string{Auth: text, Network: text}
}
