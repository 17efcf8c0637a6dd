package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/paths"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
	"pollux/internal/view/tmux"
)

// A running is a run of pollux run.
type running struct {
	streams   IO
	companion companionFlags
	remote    remoteFlags
	attach    bool
	ownMode   bool
	review    func() (string, error)
}

func newRun(streams IO) *cobra.Command {
	r := &running{streams: streams}
	cmd := &cobra.Command{
		Use:   "run [AGENT] [-- AGENT ARGUMENT...]",
		Short: "Start an agent here, and review its changes",
		Long: `Starts an agent in this terminal, connected to Pollux. You review the changes
that it proposes on a page in the browser, with pollux review, or in an editor
that joins. In tmux, --review split opens the review in a new pane, --review
popup in a popup. The agents:

` + agentList() + `
Without AGENT, Pollux starts the one that is installed. If there are several, it
asks which one, and remembers the answer. The agent's arguments, or another
command, go after --:

    pollux run claude
    pollux run -- claude --permission-mode default
    pollux run -- gemini --model gemini-2.5-flash

If no agent is installed, Pollux offers to download with npm the release of
Gemini CLI that it is tested with.

If another pollux run is working in this directory, one page shows the changes of
both agents.

With --attach the agent connects to a companion that is already running: that of
the editor whose terminal this is, or of this directory. --socket, --ssh and --via
reach one in another container or on another host; --map gives the project's path
there (pollux help remote). Only Gemini CLI and Qwen Code can connect to another
container or host.

An agent that would change files without asking starts in the mode in which it
asks, unless you have chosen a mode in its arguments or settings; --own-mode
leaves the choice to the agent. opencode and Codex CLI ask in their own terminals.

If Gemini CLI's settings do not mention IDE mode, Pollux offers to turn it on.`,
		ValidArgsFunction: completeAgents,
		Args:              cobra.ArbitraryArgs,
		RunE:              r.run,
	}
	r.companion.add(cmd)
	r.remote.add(cmd)
	switchFlag(cmd, "run.attach", &r.attach)
	switchFlag(cmd, "run.own-mode", &r.ownMode)
	r.review = reviewFlag(cmd, streams)
	return cmd
}

// run checks the flags, finds the agent, and runs it.
func (r *running) run(cmd *cobra.Command, args []string) error {
	if err := namesAgent(args, cmd.ArgsLenAtDash()); err != nil {
		return err
	}
	where, err := r.review()
	if err != nil {
		return err
	}
	if !r.attach {
		if anyChanged(cmd, "socket", "ssh", "via", "dir", "map") {
			return usageError{errors.New("--socket, --ssh, --via, --dir and --map need --attach")}
		}
		r.remote = remoteFlags{} // settings for --attach
	}
	if _, _, err := r.companion.agentConfig(); err != nil { // before the user answers questions
		return err
	}
	s, err := findAgent(cmd.Context(), r.streams, args, r.remote.away())
	if err != nil {
		return err
	}
	s.review, s.ownMode = where, r.ownMode
	if r.remote.away() && !s.agent.Remote {
		return usageError{fmt.Errorf("%s connects only to a companion on its own machine: "+
			"start it there without --ssh, --via and --map, or start %s here", s.agent.Title,
			names(launches(func(l ide.Launch) bool { return l.Remote })))}
	}
	if s.agent.IDEMode {
		if err := offerIDEMode(cmd.Context(), r.streams, false); err != nil {
			return err
		}
	}
	if r.attach {
		return r.runAttached(cmd.Context(), s)
	}
	return r.runHere(cmd, s)
}

// runAttached runs an agent with the running companion that the flags select.
func (r *running) runAttached(ctx context.Context, s session) error {
	ended := func() { showEnded(ctx, r.streams, s.agent.Title, true) }
	if s.agent.Remote && (r.remote.away() || r.remote.socket != "") {
		return withRemote(ctx, r.streams.Err, &r.remote, func(ctx context.Context, p published) error {
			ctx, stop := leaveInterruptToAgent(ctx)
			defer stop()
			say(r.streams.Err, "connected to the companion of %s", p.editor)
			defer noticeLosses(p, ended)()
			return s.run(ctx, r.streams, p.env)
		})
	}
	socket, err := r.remote.find(ctx, "")
	if err != nil {
		return err
	}
	s.attached = true
	leave, err := hold(ctx, socket, ended)
	if err == nil { // otherwise the agent's connection fails, too
		defer leave()
	}
	return r.join(ctx, socket, s)
}

// runHere runs an agent with the companion of another pollux run here, or with a new one.
func (r *running) runHere(cmd *cobra.Command, s session) error {
	ctx := cmd.Context()
	explainLeft(r.streams, false)
	defer explainLeft(r.streams, true) // after the companion has ended
	if !anyChanged(cmd, "root", "include-ignored", "listen", "host-name") {
		socket, inEditor, above := otherRun(ctx)
		if inEditor != "" {
			say(r.streams.Err, "%s is open in this folder, but does not see this agent: to connect the agent to it, start the agent with `%s`",
				inEditor, "pollux run --attach "+shell.EndOfFlags()+" "+s.agent.Name)
		}
		if socket != "" {
			leave, err := hold(ctx, socket, func() { showEnded(ctx, r.streams, s.agent.Title, false) })
			if err == nil { // otherwise it has just ended
				defer leave()
				return r.join(ctx, socket, s)
			}
		}
		if above != "" {
			say(r.streams.Err, "the review of the agent in %s does not show this agent's changes: review them in this directory",
				termtext.Visible(paths.Short(above)))
		}
	}
	c, leave, err := startCompanion(ctx, r.streams, s.agent.Name, r.companion.args(cmd))
	if err != nil {
		return err
	}
	defer leave()
	s.starts = true
	return runAgent(ctx, r.streams, c, s)
}

// join runs an agent with the companion at a socket.
func (r *running) join(ctx context.Context, socket string, s session) error {
	c, err := joinCompanion(ctx, r.streams, socket)
	if err != nil {
		return err
	}
	return runAgent(ctx, r.streams, c, s)
}

// The values of --review: where `pollux run` shows the review.
const (
	reviewBrowser = "browser"
	reviewSplit   = "split"
	reviewPopup   = "popup"
	reviewNone    = "none"
)

// reviewFlag adds the flags that control where the review is shown, and returns
// a function that checks them.
func reviewFlag(cmd *cobra.Command, streams IO) func() (string, error) {
	var where string
	var noBrowser bool
	textFlag(cmd, "run.review", &where)
	switchFlag(cmd, "run.no-browser", &noBrowser)
	return func() (string, error) {
		wrong := func(text string) (string, error) { return "", usageError{errors.New(text)} }
		switch where {
		case reviewSplit, reviewPopup:
			if os.Getenv("TMUX") != "" {
				return where, nil
			}
			if cmd.Flags().Changed("review") && runtime.GOOS == "windows" {
				return wrong("--review " + where + " needs tmux, which Windows does not have: use --review browser")
			}
			if cmd.Flags().Changed("review") {
				return wrong("--review " + where + " needs tmux: run this command in tmux")
			}
			// A setting is for all terminals.
			say(streams.Err, "the setting run.review is %s, but this is not tmux: the review is on the page", where)
			where = reviewBrowser
		case reviewBrowser, reviewNone:
		default:
			return wrong("unknown --review " + where + ": use browser, split, popup or none")
		}
		if noBrowser {
			where = reviewNone
		}
		return where, nil
	}
}

// anyChanged reports whether one of the flags is on the command line.
func anyChanged(cmd *cobra.Command, names ...string) bool {
	return slices.ContainsFunc(names, cmd.Flags().Changed)
}

// reviewIn opens the review in tmux and returns a function that closes it. A
// pane closes together with the companion.
func reviewIn(ctx context.Context, where, socket string) (stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if socket == "" {
		return nil, errors.New("the companion has no socket: set POLLUX_RUNTIME_DIR to a short path")
	}
	if where == reviewSplit {
		return func() {}, tmux.Split(tmux.InEnvironment(os.Environ(), exe, "review", "--socket", socket)...)
	}
	conn, err := editor.Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	client := editor.Implementation{Name: "tmux popup", Version: version()}
	review := tmux.InEnvironment(os.Environ(), exe, "review", "--once", "--socket", socket)
	return tmux.Popups(ctx, conn, client, review...)
}

// A session is one run of an agent, connected to a companion.
type session struct {
	agent ide.Launch
	argv  []string
	// env is added to the companion's variables, as KEY=VALUE.
	env    []string
	dir    string
	review string // one of the review constants
	// ownMode lets the agent start in its own default mode.
	ownMode bool
	// starts is set if the companion was started for this agent, and attached if --attach has
	// found it.
	starts, attached bool
	demo             bool // the journal does not stay
}

// runAgent runs the agent in the foreground, connected to a companion.
func runAgent(ctx context.Context, streams IO, c reached, s session) error {
	ctx, stop := leaveInterruptToAgent(ctx)
	defer stop()
	if s.starts && s.agent.Package == "" { // it may start any agent
		for _, note := range c.Notes {
			say(streams.Err, "%s", note)
		}
	}
	see := "review changes"
	if s.agent.NoReview {
		see = "see what the agent has changed"
	}
	switch {
	case c.Link == "":
	case c.Editor != "":
		say(streams.Err, "%s in %s, or on a page: %s", see, termtext.Line(c.Editor, 40), typed("open"))
	default:
		printPageLink(streams.Err, see, c.Link)
	}
	switch {
	case s.attached:
	case s.review == reviewSplit, s.review == reviewPopup:
		stop, err := reviewIn(ctx, s.review, c.Env[editor.EnvSocket])
		if err != nil {
			return err
		}
		defer stop()
	case s.review == reviewBrowser && s.starts && shell.OpenBrowser(c.Link):
		say(streams.Err, "opening it in your browser")
	}
	return s.run(ctx, streams, c.Env)
}

// leaveInterruptToAgent returns a context for the time while the agent owns the
// terminal. An interrupt goes to the agent and does not end the context.
func leaveInterruptToAgent(ctx context.Context) (context.Context, func()) {
	ctx, stop := untilTerminated(ctx)
	undo := proc.LeaveInterruptToChild()
	return ctx, func() { undo(); stop() }
}

// run runs the agent, and restarts it if it asks for that.
func (s session) run(ctx context.Context, streams IO, companion map[string]string) error {
	setsMode, warning := s.ask()
	if warning != "" {
		say(streams.Err, "%s", warning)
	}
	if s.agent.Hint != nil {
		if hint := s.agent.Hint(s.argv[1:]); hint != "" {
			say(streams.Err, "%s", hint)
		}
	}
	s.explainReview(streams)
	if err := s.readFirst(ctx, streams, setsMode); err != nil {
		return err
	}
	if !s.demo {
		started := time.Now()
		defer func() { explainJournal(streams, started) }()
	}
	env := append(s.agent.Environ(os.Environ(), companion), s.env...)
	for {
		err := s.foreground(ctx, streams, env)
		var exit exitError
		if !errors.As(err, &exit) || exit.code != s.agent.RestartCode || ctx.Err() != nil {
			return err
		}
	}
}

// ask makes the agent ask before it changes a file, unless the user has chosen a mode. It
// reports whether it has set the mode, or returns what to tell the user of an agent that does
// not ask.
func (s *session) ask() (setsMode bool, warning string) {
	mode := s.agent.Mode(s.argv[1:], s.dir)
	if !s.ownMode && mode.Makes() {
		if err := mode.Write(); err != nil {
			return false, mode.Warning(s.agent.Title) + " (" + err.Error() + ")"
		}
		s.argv = slices.Insert(s.argv, 1, mode.Args...)
		s.env = append(s.env, mode.Env...)
		return true, ""
	}
	return false, mode.Warning(s.agent.Title)
}

// killDelay is the time that an agent has to end after SIGTERM.
const killDelay = 4 * time.Second

// foreground runs the agent in this terminal and returns its exit code as an
// error. The agent is in Pollux's process group, so that keys such as Ctrl-C
// reach both.
func (s session) foreground(ctx context.Context, streams IO, env []string) error {
	cmd, err := proc.Command(context.Background(), s.argv[0], s.argv[1:]...)
	if err == nil {
		err = proc.SetDir(cmd, s.dir)
	}
	if err != nil {
		return fmt.Errorf("cannot start %s (%w)", s.argv[0], err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.In, streams.Out, streams.Err
	cmd.Env = env
	err = proc.RunForeground(ctx, cmd, killDelay)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return exitError{128 + int(syscall.SIGTERM)}
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return exitError{proc.ExitCode(exit.ProcessState)}
	}
	return fmt.Errorf("cannot start %s (%w): check the command after --", s.argv[0], err)
}
