package agent

// An Agent is a row of the table of agents: what the bridge and the runners
// need to know of one agent. Its functions may be called from many goroutines.
type Agent struct {
	// Name is the agent's name in settings and keys, such as "gemini";
	// DisplayName is for people and models, such as "Gemini CLI". Model is what
	// people call the model behind it, such as "Gemini".
	Name, DisplayName, Model string
	// Command is the program, a name on the PATH, and CommandVar the environment
	// variable that replaces it. VarPrefix starts the names of the bridge's
	// other settings, such as "GEMINI_".
	Command, CommandVar, VarPrefix string
	// ExampleModel is a valid model name, for messages. FallbackModel answers
	// where the default model is overloaded; empty for none.
	ExampleModel, FallbackModel string
	// ReadTools names the tools that the agent may use when it is read-only.
	ReadTools []string
	// MaxPrompt bounds a prompt, in bytes.
	MaxPrompt int
	// Escapes reports whether a prompt with this text is escaped before a process
	// that runs once gets it, and Unescape undoes that in what the model quotes.
	Escapes  func(text string) bool
	Unescape func(text string) string

	// ToolVerbs describe the use of a tool in progress reports, such as
	// "reading". A tool that is not listed is reported by its name.
	ToolVerbs map[string]string
}
