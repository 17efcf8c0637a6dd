// Package cli is the command line: one file a command.
//
// What is printed where: the result of a command goes to standard output and
// nothing else does; with --json it is one JSON value. Messages for the user
// go to standard error, one sentence each, starting with "pollux: ", and an
// error ends in the next step to take. `pollux ide` and `pollux connect` speak
// a protocol on standard output, so that everything else they have to say goes
// to standard error. The exit code is 0 for success, 1 for a failure, 2 for a
// wrong call; `pollux run` and `pollux demo` end with the CLI's own.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// Version is stamped by the release; a build from a checkout has "devel".
var Version = "devel"

// An IO is what a command reads and writes.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main runs the command line and returns its exit code.
func Main() int {
	sys.SurviveClosedPipes()
	return Run(context.Background(), IO{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
}

// Run runs one command.
func Run(ctx context.Context, streams IO, args []string) int {
	root := newRoot(streams)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var exit exitError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		fmt.Fprintf(streams.Err, "pollux: %s\nRun `%s --help` for how it is used.\n", termtext.Text(err.Error()), usage.command)
		return 2
	}
	fmt.Fprintf(streams.Err, "pollux: %s\n", termtext.Text(err.Error()))
	return 1
}

// An exitError ends Pollux with a child's exit code.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// interrupted is how a command ends that a signal has ended.
var interrupted = exitError{128 + int(syscall.SIGINT)}

// A usageError is a call whose words are off.
type usageError struct {
	error
	command string
}

// Root is the whole command line, for what is made of it: manual pages and
// completions.
func Root() *cobra.Command { return newRoot(IO{os.Stdin, os.Stdout, os.Stderr}) }

func newRoot(streams IO) *cobra.Command {
	root := &cobra.Command{
		Use:   "pollux",
		Short: "Gemini CLI's companion for every editor, and its bridge for every agent",
		Long: `Pollux stands beside Gemini CLI: it tells the CLI which files are open in your
editor, where the cursor is and what is selected, and shows the changes that
the CLI proposes as a diff that you edit, accept or reject. And it lets other
agents, and your shell, ask Gemini CLI, which can then read and nothing else.

  pollux run      start Gemini CLI here, with review in a browser page
  pollux demo     try it on a sample project: no account and no key needed
  pollux ask      ask a question from the shell
  pollux install  give Neovim, Vim, Emacs, Kakoune or Helix the companion, or
                  Claude Code, Codex, Cursor or VS Code the bridge
  pollux review   the changes that wait, in a terminal
  pollux doctor   why Gemini CLI does not connect, and what to do`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.SetVersionTemplate("pollux {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{err, cmd.CommandPath()} })
	root.AddCommand(
		newRun(streams), newDemo(streams), newIDE(streams), newConnect(streams),
		newReview(streams), newLSP(streams), newNotify(streams), newStatus(streams), newDoctor(streams), newJournal(streams),
		newBridge(streams), newAsk(streams), newInstall(streams), newConformance(streams),
	)
	for _, cmd := range root.Commands() {
		checkArgs(cmd)
	}
	root.Args = func(cmd *cobra.Command, a []string) error {
		if len(a) > 0 {
			return usageError{fmt.Errorf("unknown command %q", a[0]), cmd.CommandPath()}
		}
		return nil
	}
	return root
}

// checkArgs makes usage errors of a command's wrong arguments, and of those of
// the commands below it.
func checkArgs(cmd *cobra.Command) {
	args := cmd.Args
	if args == nil {
		args = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, a []string) error {
		if err := args(cmd, a); err != nil {
			return usageError{err, cmd.CommandPath()}
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		checkArgs(sub)
	}
}

func version() string {
	if Version != "devel" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return Version
}

// self names this program to companions.
func self() editor.Implementation {
	return editor.Implementation{Name: "pollux", Version: version()}
}

// logger writes to standard error what the level lets through. At the default
// level no token, prompt, path or text of the user's is in it.
func logger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{fmt.Errorf("unknown log level %q: use debug, info, warn or error", level), "pollux"}
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

func printJSON(w io.Writer, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(termtext.JSON(out.Bytes()))
	return err
}
