// Package cli is the command line, with one file for each command. cli.go
// contains the code that they share. streams.go contains the standard streams,
// and ends commands.
//
// Rules for output:
//   - Standard output gets the result of a command, and nothing else. With
//     --json the result is one JSON value.
//   - Standard error gets messages to the user, one sentence each: see [say].
//     An error ends with the next step to take.
//   - `pollux ide`, `lsp`, `connect` and `bridge` speak a protocol on standard
//     output. All their messages go to standard error.
//   - The exit code is 0 for success, 1 for a failure, 2 for wrong usage. `pollux
//     run` and `pollux demo` exit with the agent's exit code.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/install"
	"pollux/internal/sys/proc"
	"pollux/internal/typo"
)

// Version is set by the release build. In a build from a checkout it is "devel".
var Version = "devel"

// Main runs the command line of this process and returns its exit code.
func Main() int {
	proc.PrepareProcess()
	return Run(context.Background(), IO{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
}

// Run runs one command and returns its exit code.
func Run(ctx context.Context, streams IO, args []string) int {
	root := newRoot(streams)
	root.SetArgs(args)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		eachCommand(root, completeFlags)
		eachCommand(root, plainUsages)
	}
	cmd, err := root.ExecuteContextC(ctx)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, new(usageError)):
		say(streams.Err, "%s", err)
		if args := (argsError{}); errors.As(err, &args) {
			fmt.Fprintf(streams.Err, "Usage: %s\n", args.usage)
		}
		fmt.Fprintf(streams.Err, "Run `%s --help` for usage.\n", cmd.CommandPath())
		return 2
	case unread(err):
		return brokenPipe
	}
	say(streams.Err, "%s", err)
	return 1
}

// brokenPipe is the exit code of a program that the signal SIGPIPE ends.
const brokenPipe = 128 + 13

// unread reports whether an error says that the reader of standard output, such as head or a
// pager, has ended. Its user expects no message.
func unread(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Path == os.Stdout.Name() && errors.Is(err, syscall.EPIPE)
}

// An exitError ends Pollux with an exit code and no message.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// interrupted is the exit error of a command that a signal ended.
var interrupted = exitError{128 + int(syscall.SIGINT)}

// A usageError reports wrong arguments or flags. [Run] adds a hint at the usage.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// An argsError is a usageError about the arguments. [Run] adds the command's usage.
type argsError struct {
	error
	usage string
}

// Root returns the whole command line. The manual pages and completions are
// generated from it.
func Root() *cobra.Command { return newRoot(IO{os.Stdin, os.Stdout, os.Stderr}) }

func newRoot(streams IO) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "pollux",
		Short: "Connect coding agents to your editor, and to each other",
		Long: `Pollux connects coding agents in the terminal, such as Gemini CLI and Claude
Code, to your editor. The agent sees what you have open and selected, and you
edit, accept or reject each change that it proposes. Pollux also lets your
agents, your editor and your shell ask any of them, read-only.

Start here:

  pollux demo          try it on a sample project: no account and no key needed
  pollux run           start an agent here and review its changes in the browser
  pollux install nvim  connect Neovim to agents; also vim, emacs, kakoune, helix
  pollux doctor        find out why an agent does not connect, and what to do
  pollux help help     list the pages of the manual`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(streams)
			}
			return cmd.Help()
		},
	}
	// Cobra's own flag needs a template for this text. A template can call every method of
	// every type, so the linker would keep them all: 5 MB.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return applySettings(cmd) }
	root.SetFlagErrorFunc(flagError)
	addGroup(root, "Every day:", newRun(streams), newReview(streams), newOpen(streams), newSend(streams), newAsk(streams))
	addGroup(root, "Set up:", newInstall(streams), newDoctor(streams), newConfig(streams), newDemo(streams))
	addGroup(root, lookGroup, newStatus(streams), newJournal(streams), newUsage(streams), newLog(streams))
	root.AddCommand(
		newIDE(streams), newLSP(streams), newBridge(streams), newConnect(streams), newNotify(streams), newPool(streams),
		newConformance(streams), newWall(), newVersion(streams),
	)
	root.SetHelpCommand(newHelp(streams))
	root.SetHelpCommandGroupID(lookGroup)
	root.InitDefaultHelpCmd()
	root.SetUsageFunc(showUsage)
	showGroups(root)
	describeCompletion(root)
	eachCommand(root, checkArgs)
	return root
}

// lookGroup is the title of the group that also has a command of cobra.
const lookGroup = "Look:"

// addGroup adds commands to a command, in a group with a title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
		root.AddCommand(cmd)
	}
}

// newVersion returns the former name of --version.
func newVersion(streams IO) *cobra.Command {
	return &cobra.Command{
		Use:    "version",
		Short:  "Print the version",
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			say(streams.Err, "`pollux --version` prints this, too")
			return printVersion(streams)
		},
	}
}

func printVersion(streams IO) error {
	_, err := fmt.Fprintf(streams.Out, "pollux %s\n", version())
	return err
}

// checkArgs turns errors about the arguments of a command into usage errors. A
// command without a check takes no arguments.
func checkArgs(cmd *cobra.Command) {
	args := cmd.Args
	if args == nil {
		args = noArgs
	}
	cmd.Args = func(cmd *cobra.Command, a []string) error {
		if err := args(cmd, a); err != nil {
			if !cmd.HasSubCommands() {
				err = argsError{err, cmd.UseLine()}
			}
			return usageError{err}
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, a []string) error {
	switch {
	case len(a) == 0:
		return nil
	case cmd.HasSubCommands():
		return unknown("command", a[0], suggestions(cmd, a[0]))
	}
	return fmt.Errorf("unexpected argument %q", a[0])
}

// maxTypos is how many letters may be wrong in a word that Pollux corrects.
const maxTypos = 2

// suggestions returns the commands that a wrong name of a subcommand may mean.
func suggestions(cmd *cobra.Command, name string) (all []string) {
	cmd.SuggestionsMinimumDistance = maxTypos
	names := cmd.SuggestionsFor(name)
	for _, sub := range cmd.Commands() {
		if len(similar(name, sub.Aliases)) > 0 && !slices.Contains(names, sub.Name()) {
			names = append(names, sub.Name())
		}
	}
	for _, s := range names {
		all = append(all, cmd.CommandPath()+" "+s)
	}
	installs := cmd.Name() == "install"
	if (installs || !cmd.HasParent()) && isAgent(name) {
		all = append(all, "pollux run -- "+name)
	}
	for _, c := range install.Clients {
		if installs && (c.Name == name || c.Name == name+"-code") {
			all = append(all, "pollux install bridge "+c.Name)
		}
	}
	return all
}

// similar returns the names that a wrong one may mean.
func similar(name string, names []string) []string {
	return typo.Similar(name, names, maxTypos)
}

// unknown returns the error for a wrong name, with the names that it may mean.
func unknown(kind, name string, suggestions []string) error {
	if len(suggestions) == 0 {
		return fmt.Errorf("unknown %s %q", kind, name)
	}
	return fmt.Errorf("unknown %s %q: did you mean `%s`?", kind, name, strings.Join(suggestions, "` or `"))
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

// self describes this program to companions.
func self() editor.Implementation {
	return editor.Implementation{Name: "pollux", Version: version()}
}
