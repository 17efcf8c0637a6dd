package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/sys"
)

func newRun(streams IO) *cobra.Command {
	var flags companionFlags
	var far remoteFlags
	var attach bool
	var review func() (string, error)
	cmd := &cobra.Command{
		Use:   "run [-- gemini [ARGUMENT...]]",
		Short: "Start Gemini CLI here, connected to a companion",
		Long: `Starts a companion for this directory and runs Gemini CLI in this terminal,
connected to it. Changes that the CLI proposes wait on a page in the browser,
and in any editor that joins (pollux ide --attach). In tmux, --review split
shows them in a pane beside, --review popup in a popup.

With --attach no companion is started: the CLI is connected to one that runs,
that of the editor in whose terminal this is, or of the directory; or to one in
another container or on another host, by --socket, --ssh or --via, with --map
where the project has another name there (docs/REMOTE.md).

Where Gemini CLI's IDE mode is not on yet, Pollux asks once to turn it on in the
CLI's settings.

The CLI is the gemini on the PATH, else npx fetches it. What stands after --
is run instead: pollux run -- gemini --model gemini-2.5-flash`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
				return usageError{fmt.Errorf("unknown argument %q: what to run goes after --", args[0]), cmd.CommandPath()}
			}
			where, err := review()
			if err != nil {
				return err
			}
			if !attach && (far.away() || far.socket != "" || far.dir != "") {
				return usageError{errors.New("--socket, --ssh, --via, --dir and --map go with --attach"), cmd.CommandPath()}
			}
			if len(args) == 0 {
				if args, err = findGemini(); err != nil {
					return err
				}
			}
			if args[0], err = exec.LookPath(args[0]); err != nil {
				fmt.Fprintf(streams.Err, "pollux: %v: check the command after --\n", err)
				return exitError{127}
			}
			cfg, err := flags.config(streams)
			if err != nil {
				return err
			}
			if err := offerIDEMode(streams, isTerminal(streams.In)); err != nil {
				return err
			}
			if attach && (far.away() || far.socket != "") {
				return withRemote(cmd.Context(), streams.Err, &far, cmd.CommandPath(), func(p published) error {
					ctx, stop := leaveToCLI(cmd.Context())
					defer stop()
					fmt.Fprintf(streams.Err, "pollux: connected to the companion of %s\n", p.editor)
					return session{argv: args}.run(ctx, streams, p.env)
				})
			}
			if attach {
				return joinCLI(cmd.Context(), streams, &far, session{argv: args})
			}
			return runCLI(cmd.Context(), streams, cfg, session{argv: args, review: where})
		},
	}
	flags.add(cmd)
	far.add(cmd)
	cmd.Flags().BoolVar(&attach, "attach", false, "connect the CLI to a companion that runs")
	review = reviewFlag(cmd)
	return cmd
}

// findGemini returns the words that start Gemini CLI.
func findGemini() ([]string, error) {
	if path, err := exec.LookPath("gemini"); err == nil {
		return []string{path}, nil
	}
	if path, err := exec.LookPath("npx"); err == nil {
		return []string{path, "--yes", "@google/gemini-cli"}, nil
	}
	return nil, errors.New("Gemini CLI is not installed: install Node.js 20 or newer, then `npm install -g @google/gemini-cli`")
}

// A session is one run of a CLI with a companion.
type session struct {
	argv []string
	// env is added to the companion's, as KEY=VALUE.
	env    []string
	dir    string
	review string // one of the review constants
	// started is called when the companion is up, before the CLI starts.
	started func(*ide.Host)
}

// runCLI starts a companion, runs the CLI in the foreground, and ends with it.
func runCLI(ctx context.Context, streams IO, cfg ide.Config, s session) error {
	ctx, stop := leaveToCLI(ctx)
	defer stop()
	cfg.Editor = editor.Info{Name: "pollux", DisplayName: "Pollux"}
	cfg.Settings.ReviewPage = true
	return guard(cfg, func(h *ide.Host) error {
		if s.started != nil {
			s.started(h)
		}
		link := printLink(streams.Err, h)
		switch s.review {
		case reviewBrowser:
			if sys.OpenBrowser(link) {
				fmt.Fprintln(streams.Err, "pollux: it opens in your browser")
			}
		case reviewSplit, reviewPopup:
			stop, err := reviewIn(s.review, h)
			if err != nil {
				return err
			}
			defer stop()
		}
		return s.run(ctx, streams, h.Env())
	})
}

// joinCLI runs the CLI in the foreground with a companion of this machine that
// runs already.
func joinCLI(ctx context.Context, streams IO, at *remoteFlags, s session) error {
	ctx, stop := leaveToCLI(ctx)
	defer stop()
	path, err := at.find(ctx, "")
	if err != nil {
		return err
	}
	var env map[string]string
	err = ask(ctx, path, func(_ context.Context, _ *editor.Client, info editor.InitializeResult) error {
		env = editor.KnownEnv(info.Env)
		return nil
	})
	if err != nil {
		return err
	}
	return s.run(ctx, streams, env)
}

// leaveToCLI makes a context for the time that a CLI has the terminal: an
// interrupt is the CLI's, and one too many, typed while we clean up, is
// nobody's.
func leaveToCLI(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP)
	undo := sys.LeaveInterruptToChild()
	return ctx, func() { undo(); stop() }
}

// run runs the CLI, and again when it asks for it.
func (s session) run(ctx context.Context, streams IO, companion map[string]string) error {
	// Without its launcher, a second process that ignores the signals which
	// end a terminal's programs, the CLI cannot outlive us.
	env := append(os.Environ(), "GEMINI_CLI_NO_RELAUNCH=true")
	for k, v := range companion {
		env = append(env, k+"="+v)
	}
	env = append(env, s.env...)
	for {
		err := foreground(ctx, streams, s, env)
		var exit exitError
		if !errors.As(err, &exit) || exit.code != exitRestart || ctx.Err() != nil {
			return err
		}
	}
}

// exitRestart is how Gemini CLI asks its launcher to start it again, for
// instance when the user has decided to trust the folder.
const exitRestart = 199

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func printLink(w io.Writer, h *ide.Host) string {
	link, err := h.Link()
	if err == nil {
		fmt.Fprintf(w, "pollux: review changes at %s\n", link)
	}
	return link
}

// killDelay is how long a CLI may take to end after it was asked to.
const killDelay = 4 * time.Second

// foreground runs the CLI in this terminal and ends with its exit code. It
// shares our process group, so that the terminal's keys reach both.
func foreground(ctx context.Context, streams IO, s session, env []string) error {
	ended := make(chan error, 1)
	go func() {
		// The parent-death signal is bound to this thread.
		runtime.LockOSThread()
		cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.Err
		cmd.Env, cmd.Dir = env, s.dir
		var kill *time.Timer
		cmd.Cancel = func() error {
			// Before WaitDelay, which would kill the CLI and not what it started.
			kill = time.AfterFunc(killDelay, func() { sys.SignalTree(cmd.Process.Pid, syscall.SIGKILL) })
			return sys.SignalTree(cmd.Process.Pid, syscall.SIGTERM)
		}
		cmd.WaitDelay = killDelay + time.Second
		sys.TieToParent(cmd)
		err := cmd.Run()
		if kill != nil {
			kill.Stop()
		}
		ended <- err
	}()
	err := <-ended
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return exitError{128 + int(syscall.SIGTERM)}
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return exitError{sys.ExitCode(exit.ProcessState)}
	}
	return fmt.Errorf("%s cannot be started (%w): check the command after --", s.argv[0], err)
}
