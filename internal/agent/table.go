package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"pollux/internal/sys/proc"
)

// An Agent is a row of the table of agents. It holds all that the bridge and the
// runners know about one agent. Its functions may be called from several
// goroutines. All fields are required, unless their comment says otherwise.
type Agent struct {
	// Name is the agent's name in settings and keys, such as "gemini".
	// DisplayName is its name for people and models, such as "Gemini CLI". Model
	// is the name that people use for its model, such as "Gemini".
	Name, DisplayName, Model string
	// Provider is the name of the model's provider in the semantic conventions of
	// OpenTelemetry (gen_ai.provider.name).
	Provider string
	// Clients are the prefixes of the agent's names as an MCP client.
	Clients []string
	// Command is the program, a name on the PATH. CommandVar is the environment
	// variable that overrides it. VarPrefix is the prefix of the bridge's other
	// variables, such as "GEMINI_".
	Command, CommandVar, VarPrefix string
	// ExampleModel is a valid model name for use in messages. FallbackModel
	// answers if the default model is overloaded. It may be empty.
	ExampleModel, FallbackModel string
	// MaxPrompt limits a prompt, in bytes.
	MaxPrompt int

	// ReadTools are the tools that the agent may use when it is read-only.
	// ReadAliases are other names for them. WriteTools are the tools that it may
	// also use in change mode. SearchTool is the web search among the ReadTools,
	// or empty.
	ReadTools, ReadAliases, WriteTools []string
	SearchTool                         string

	// Escapes reports whether this text is escaped in the prompt of a one-shot
	// process. Unescape removes the escapes from the model's quotes.
	Escapes  func(text string) bool
	Unescape func(text string) string

	// ToolVerbs describe the use of a tool in progress reports, such as
	// "reading". A tool that is not listed is reported by its name.
	ToolVerbs map[string]string

	// Environment returns the variables of an environment that the agent receives,
	// sorted by name. Pollux adds its own to them. Sources that differ only in
	// other variables share a process.
	Environment func(Env) []string
	// Account identifies the account whose quota the requests from an environment
	// in a workspace use. It is a hash that reveals nothing. Account reads files.
	Account func(env Env, dir string) string

	// Locate returns the program of a source without running it. The Version is empty
	// if no package names it. The error is an [*Error] of kind [NotInstalled].
	Locate func(Source) (Program, error)
	// AskVersion runs a program to learn its version, which stays empty if the program
	// does not report it. The error is [context.Cause] of the context.
	AskVersion func(context.Context, Source, Program) (Program, error)
	// ReadOnly returns an error for a program that cannot be enforced read-only.
	// Pollux does not start it.
	ReadOnly func(Source, Program) error
	// Sandboxed says that the agent runs the model's commands in its own sandbox of the
	// kernel, in which nothing can be written. Such a sandbox does not start behind a [Wall],
	// so the agent runs without one.
	Sandboxed bool
	// Custom says that the agent is one of the user's settings, whose tools Pollux does not know:
	// it runs only behind a [Wall], regardless of the wall's mode.
	Custom bool
	// CheckTempDir returns an error for a temporary directory that the agent
	// cannot use. It may be nil.
	CheckTempDir func(dir string) error

	// Remedies describe failures in terms of this agent.
	Remedies Remedies
	// Tidy returns an error message as one readable line, without secrets from the
	// environment.
	Tidy func(env Env, message string) string
	// KindOf classifies an error message by its words. It returns "" for an
	// unknown one.
	KindOf func(message string) Kind
	// ResetAfter returns the time until a quota is renewed, according to an error
	// message, or 0 if the message does not say.
	ResetAfter func(message string) time.Duration
	// Cause returns the line of standard error that best explains a failure, or
	// "".
	Cause func(env Env, stderr string) string

	// OneShot describes a process that answers one request. Its Command may be nil: then a
	// process as Warm describes it is started for the request and ended after it.
	OneShot OneShot
	// Warm describes a process that serves many requests.
	Warm *Warm
}

// A Definition is an agent of the user's settings, which Pollux does not know and asks over the
// Agent Client Protocol.
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

// Find returns the program of a source and its version. It runs the program only if no
// package names the version. The error is an [*Error] of kind [NotInstalled], or
// [context.Cause] of the context.
func (a *Agent) Find(ctx context.Context, from Source) (Program, error) {
	program, err := a.Locate(from)
	if err != nil || program.Version != "" {
		return program, err
	}
	return a.AskVersion(ctx, from, program)
}

// Usable reports whether the program of a source is installed and can be enforced
// read-only, as far as that is known without running it.
func (a *Agent) Usable(from Source) bool {
	program, err := a.Locate(from)
	return err == nil && (program.Version == "" || a.ReadOnly(from, program) == nil)
}

// Check returns the program of a source, with an error if it is not installed or cannot
// be enforced read-only. See [Runner].
func (a *Agent) Check(ctx context.Context, from Source) (Program, error) {
	program, err := a.Find(ctx, from)
	if err != nil {
		return program, err
	}
	return program, a.ReadOnly(from, program)
}

// Restriction says what keeps the agent from changing files: it continues a sentence about the
// agent.
func (a *Agent) Restriction() string {
	if a.Custom {
		return "may use any tool, and the kernel keeps it from changing files"
	}
	return "may use only " + strings.Join(a.ReadTools, ", ")
}

// A Launch describes a process to start.
type Launch struct {
	// Dir is the workspace. TempDir is an empty directory for the files of this
	// process. It is removed after the process has ended.
	Dir, TempDir string
	// Model is the requested model. It is empty for a process that serves many
	// requests.
	Model string
	// Change allows the use of the WriteTools. The client serves the files.
	Change bool
	// Env is the environment of the process's source.
	Env Env
}

// A Command holds the arguments and the environment of an agent's process.
type Command struct {
	Args []string
	// Env is the entire environment. It is required: without it, the process
	// would inherit the environment of Pollux.
	Env []string
	// Writable are the absolute paths of the files and directories that the process must be
	// able to change, such as the agent's own state. [Launch.TempDir] always is. Those that
	// do not exist are skipped. Parents are directories in which it must be able to make
	// directories, but need not change files.
	Writable, Parents []string
	// Unlinked names the user's credentials that the process cannot see.
	Unlinked []string
	// Log is the path of a file, which does not exist yet, to which the process appends what
	// it would otherwise write to standard error; "" if it writes there.
	Log string
}

// Cmd returns the command line that runs a program in dir. It returns an error
// if there is no environment, or if the program is a batch file that cannot receive
// the arguments.
func (c Command) Cmd(p Program, dir string) (*exec.Cmd, error) {
	if len(c.Env) == 0 {
		return nil, errors.New("the agent's process has no environment: report this error to Pollux")
	}
	cmd, err := proc.Command(context.Background(), p.Argv[0], slices.Concat(p.Argv[1:], c.Args)...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(slices.Clone(c.Env), DepthVar+"=1")
	return cmd, proc.SetDir(cmd, dir)
}

// OneShot describes how an agent answers one request and exits.
type OneShot struct {
	// Command writes the policy and other files, and returns how to start the
	// process. The prompt goes to its standard input.
	Command func(Launch) (Command, error)
	// Prompt returns the text for standard input, with the images attached. It
	// is escaped, so that it neither reads files nor runs commands.
	Prompt func(text string, images []string) string
	// Parser returns a parser for the process's standard output.
	Parser func(*Transcript) Parser
	// Monitor returns a monitor for the process's standard error.
	Monitor func(Env) Monitor
	// Failure classifies the failure of a process that ended on its own.
	Failure func(env Env, exit int, message, stderr string) *Error
}

// A Parser reads the output of a process and fills a [Transcript]. Output
// arrives in pieces of any size. Write never returns an error.
type Parser interface {
	io.Writer
	// Finish is called once, after the last output.
	Finish()
	// Outcome returns how the run ended, according to the agent.
	Outcome() Outcome
}

// An Outcome describes how a run ended, according to the agent.
type Outcome struct {
	// Ended reports whether a result has arrived, OK whether it is a success.
	Ended, OK bool
	// Message is the last error message.
	Message string
}

// A Monitor reads the standard error of one process. It keeps a limited amount.
type Monitor interface {
	// Read takes the next piece and returns the signs that it finds.
	Read(b []byte) Signs
}

// Signs are events that an agent reports only on standard error.
type Signs struct {
	// Retries are the retries of model requests that the agent announced.
	Retries []Retry
	// Unenforced reports whether the agent ignores its policy.
	Unenforced bool
	// SearchLoop reports whether the agent repeats a web search endlessly.
	SearchLoop bool
}

// Warm describes how a process of an agent serves many requests.
type Warm struct {
	// Command writes the policy and other files, and returns how to start the
	// process. An [*Error] refuses the workspace.
	Command func(Launch) (Command, error)
	// Connect starts a connection: it reads the process's output from r and writes its
	// input to w. With files, the client serves files to the agent.
	Connect func(r io.ReadCloser, w io.WriteCloser, files bool, client Client) Conn
	// Single reports whether a process holds one conversation, and answers one prompt at
	// a time. A new conversation then ends the one before.
	Single bool
	// TakesSchema says that a prompt may have a [Content] of type "schema".
	TakesSchema bool
	// Prompt changes a prompt so that the agent does not run it as a command.
	Prompt func(text string) string
	// Inputs lists the files that the agent reads when it starts in dir. If one
	// of them changes, the next request starts a new process.
	Inputs func(from Source, p Program, dir string) []string
	// CanChange returns an error if change mode is not possible in dir, because
	// the agent would write to the disk. It is nil if the agent cannot write to files
	// that its client serves: then the answer to [Request.Prompt] has the changes.
	CanChange func(from Source, p Program, dir string) error
	// Tool returns the name of a tool and a summary of its arguments, from the first
	// update of a tool call.
	Tool func(Update) (name, summary string)
	// Notice reports whether a message comes from the agent and not from the
	// model.
	Notice func(text string) bool
	// Usage reads [PromptResult.Raw]. It returns the model that wrote the most, or
	// "", and the tokens of all models.
	Usage func(result json.RawMessage) (model string, tokens Tokens)
	// Monitor returns a monitor for the process's standard error.
	Monitor func(Env) Monitor
	// Failure classifies an error response. unlinked names the credentials that
	// the process cannot read.
	Failure func(env Env, code int, message string, unlinked []string) *Error
}
