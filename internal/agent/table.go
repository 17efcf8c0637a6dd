package agent

import (
	"context"
	"encoding/json"
	"io"
)

// An Agent is a row of the table of agents: all that the bridge and the runners
// know of one agent. Its functions may be called from several goroutines. All
// fields are required, unless they say otherwise.
type Agent struct {
	// Name is the agent's name in settings and keys, such as "gemini".
	// DisplayName is for people and models, such as "Gemini CLI". Model is what
	// people call the model behind it, such as "Gemini".
	Name, DisplayName, Model string
	// Command is the program, a name on the PATH, and CommandVar the environment
	// variable that replaces it. VarPrefix starts the names of the bridge's
	// other settings, such as "GEMINI_".
	Command, CommandVar, VarPrefix string
	// ExampleModel is a valid model name, for messages. FallbackModel answers
	// if the default model is overloaded; empty for none.
	ExampleModel, FallbackModel string
	// MaxPrompt limits a prompt, in bytes.
	MaxPrompt int

	// ReadTools names the tools that the agent may use when it is read-only,
	// ReadAliases other names of these tools. WriteTools names the tools that it
	// may also use in change mode. SearchTool is the web search among the
	// ReadTools; empty if it has none.
	ReadTools, ReadAliases, WriteTools []string
	SearchTool                         string

	// Escapes reports whether a prompt with this text is escaped for a process
	// that runs once. Unescape removes the escapes from what the model quotes.
	Escapes  func(text string) bool
	Unescape func(text string) string

	// ToolVerbs describe the use of a tool in progress reports, such as
	// "reading". A tool that is not listed is reported by its name.
	ToolVerbs map[string]string

	// Find returns the program behind a command (a path, or a name on the PATH)
	// and its version. The error is an [*Error] of kind [NotInstalled], or the
	// cause of the context's end.
	Find func(ctx context.Context, command string) (Program, error)
	// ReadOnly returns an error for a program that cannot be enforced read-only.
	// Pollux does not start such a program.
	ReadOnly func(Program) error
	// CheckTempDir returns an error for a temporary directory that the agent
	// cannot use. It may be nil.
	CheckTempDir func(dir string) error

	// Remedies describe failures in the agent's own terms.
	Remedies map[Kind]Remedy
	// Tidy returns the text of an error as one readable line without secrets.
	Tidy func(message string) string
	// KindOf classifies an error by its words; empty if it does not know them.
	KindOf func(message string) Kind
	// Cause returns the line of standard error that best explains a failure, or
	// "" if none does.
	Cause func(stderr string) string

	// OneShot describes a process that answers one request.
	OneShot OneShot
	// ACP describes a process that serves the Agent Client Protocol. It is nil
	// for an agent that does not.
	ACP *ACP
}

// A Launch describes a process to start.
type Launch struct {
	// Dir is the workspace. TempDir is an empty directory for the files of this
	// process, which is removed after the process has ended.
	Dir, TempDir string
	// Model is the model to ask. It is empty for a process that serves many
	// requests.
	Model string
	// Change allows the WriteTools. The client serves the files.
	Change bool
}

// A Command is how an agent's package starts a process: its arguments and its
// environment.
type Command struct {
	Args, Env []string
	// Unlinked names the user's credentials that the process cannot see.
	Unlinked []string
}

// OneShot describes how an agent runs for one request.
type OneShot struct {
	// Command writes the policy and other files, and returns how to start the
	// process. The prompt goes to its standard input.
	Command func(Launch) (Command, error)
	// Prompt returns the text for standard input: escaped, so that it neither
	// reads files nor runs commands, with the images attached.
	Prompt func(text string, images []string) string
	// Parser returns a reader of the process's standard output.
	Parser func(*Transcript) Parser
	// Monitor returns a reader of the process's standard error.
	Monitor func() Monitor
	// Failure classifies the failure of a process that ended by itself.
	Failure func(exit int, message, stderr string) *Error
}

// A Parser reads the output of a process and fills a [Transcript]. Output
// arrives in pieces of any size. Write never fails.
type Parser interface {
	io.Writer
	// Finish is called once, when there is no more output.
	Finish(stderr []byte)
	// Outcome returns what the agent has reported about its end.
	Outcome() Outcome
}

// An Outcome is what an agent reports about its end.
type Outcome struct {
	// Ended reports that a result has arrived, OK that it reports success.
	Ended, OK bool
	// Message is that of the last error.
	Message string
}

// A Monitor reads the standard error of one process. It keeps a bounded amount.
type Monitor interface {
	// Read takes the next piece and returns the signs in it.
	Read(b []byte) Signs
}

// Signs are what an agent shows on standard error.
type Signs struct {
	// Retries are announced repetitions of a request to the model.
	Retries []Retry
	// Unenforced reports that the agent does not follow its policy.
	Unenforced bool
	// SearchLoop reports that the agent repeats a web search without end.
	SearchLoop bool
}

// ACP describes how an agent serves the Agent Client Protocol.
type ACP struct {
	// Command writes the policy and other files, and returns how to start the
	// process.
	Command func(Launch) (Command, error)
	// Prompt returns a prompt that the agent does not read as a command.
	Prompt func(text string) string
	// Inputs lists the files that the agent reads when it starts in dir. If one
	// of them changes, the next request starts another process.
	Inputs func(p Program, dir string) []string
	// CanChange returns an error if change mode is not possible in dir, because
	// the agent would write to the disk.
	CanChange func(p Program, dir string) error
	// Tool returns the name of a tool and a summary of its arguments, from the
	// ID and the title of a tool call.
	Tool func(id, title string) (name, summary string)
	// Notice reports whether a message is the agent's and not the model's.
	Notice func(text string) bool
	// Usage reads the _meta field of a prompt's result: the model that wrote the
	// most, and the tokens of all.
	Usage func(meta json.RawMessage) (model string, tokens Tokens)
	// Monitor returns a reader of the process's standard error.
	Monitor func() Monitor
	// Failure classifies an error response. unlinked names the credentials that
	// the process cannot see.
	Failure func(code int, message string, unlinked []string) *Error
}
