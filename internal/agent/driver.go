package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/sys/proc"
)

// A Driver says how to start an agent read-only, and how to talk to it.
type Driver struct {
	// MaxPrompt limits a prompt, in bytes.
	MaxPrompt int
	// ReadTools are the tools that the agent may use when it is read-only.
	// ReadAliases are other names for them. WriteTools are the tools that it may
	// also use in change mode. SearchTool is the web search among the ReadTools,
	// or empty.
	ReadTools, ReadAliases, WriteTools []string
	SearchTool                         string
	// Sandboxed says that the agent runs the model's commands in its own sandbox of the
	// kernel, in which nothing can be written. Such a sandbox does not start behind a [Wall],
	// so the agent runs without one.
	Sandboxed bool
	// Custom says that only the user's settings define the agent, so Pollux does not know its tools.
	// It runs only behind a [Wall], whatever the wall's mode.
	Custom bool
	// CheckTempDir returns an error for a temporary directory that the agent
	// cannot use. It may be nil.
	CheckTempDir func(dir string) error
	// OneShot describes a process that answers one request and exits. Its output goes to files.
	// It may be nil: then a process as Warm describes it is started for the request and ended
	// after it.
	OneShot *Process
	// Escapes reports whether the prompt of a OneShot process escapes anything in a text.
	// Unescape removes the escapes from the model's quotes. Both may be nil.
	Escapes  func(text string) bool
	Unescape func(text string) string
	// Warm describes a process that serves many requests.
	Warm *Process
}

// Restriction says what keeps the agent from changing files: it continues a sentence about the
// agent.
func (d *Driver) Restriction() string {
	if d.Custom {
		return "may use any tool, and the kernel keeps it from changing files"
	}
	return "may use only " + strings.Join(d.ReadTools, ", ")
}

// Escaped reports whether this text is escaped in the prompt of a one-shot process.
func (d *Driver) Escaped(text string) bool {
	return d.Escapes != nil && d.Escapes(text)
}

// A Launch describes a process to start.
type Launch struct {
	// Dir is the workspace. TempDir is the directory for the files of this process, as
	// [TempDir.Make] makes it. It is removed after the process has ended.
	Dir, TempDir string
	// Model is the requested model. It is empty unless the process is a [Driver.OneShot].
	Model string
	// Change allows the use of the WriteTools. The client serves the files.
	Change bool
	// Env is the environment of its source.
	Env Env
}

// Tmp returns the directory for the process's temporary files. It exists.
func (l Launch) Tmp() string { return filepath.Join(l.TempDir, tmpName) }

// A Command holds the arguments and the environment of an agent's process.
type Command struct {
	Args []string
	// Env is the entire environment. It is required: without it, the process
	// would inherit the environment of Pollux.
	Env []string
	// Writable are absolute paths: the files and directories that the process must be
	// able to change, such as the agent's own state. [Launch.TempDir] always is. Those that
	// do not exist are skipped. Parents are directories in which it must be able to make
	// directories, but need not change files.
	Writable, Parents []string
	// Unlinked names the user's credentials that the process cannot see.
	Unlinked []string
	// Logs is a pattern, as in [path.Match], for the paths of the process's log files: it appends
	// there what it would otherwise write to standard error. Only the last element can have
	// wildcards. It is empty if the process has no log files.
	Logs string
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

// A Monitor reads the standard error of one process, or one of its logs. It keeps a limited
// amount.
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

// A Process describes a process of an agent: how to start it, and how to talk to it.
type Process struct {
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
	// Prompt changes a prompt so that the agent neither runs it as a command nor reads the files
	// that it names. It may be nil.
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
	// model. It may be nil.
	Notice func(text string) bool
	// Usage reads [PromptResult.Raw]. It returns the model that wrote the most, or
	// "", and the tokens of all models.
	Usage func(result json.RawMessage) (model string, tokens Tokens)
	// Monitor returns a monitor for the process's standard error or, if log is not empty, for the
	// file of [Command.Logs] with this name. It is nil if the agent announces nothing there.
	Monitor func(env Env, log string) Monitor
	// Ended classifies the failure of a [Driver.OneShot] process that has ended, with its last
	// error message and what it wrote to standard error.
	Ended func(env Env, exit int, message, stderr string) *Error
	// Failure classifies an error response of any other process. unlinked names the credentials
	// that the process cannot read.
	Failure func(env Env, code int, message string, unlinked []string) *Error
}
