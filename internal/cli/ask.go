package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/bridge"
	"pollux/internal/ide"
)

// noChanges is the exit error of a request for changes that has none for an answer.
var noChanges = exitError{3}

// An asking is a run of pollux ask.
type asking struct {
	streams IO

	in      bridge.QueryInput
	agents  []string
	all     bool
	timeout time.Duration
	words   int
	schema  string
	search  bool
	asJSON  bool
	stream  bool
	resume  bool
	logs    logFlags
	there   poolFlags

	shape   []byte          // the schema
	history *bridge.History // nil if nothing is kept
	screen  *screen
}

func newAsk(streams IO) *cobra.Command {
	a := &asking{streams: streams}
	cmd := &cobra.Command{
		Use:   "ask [QUESTION]",
		Short: "Ask an agent a question from the shell, read-only",
		Long: `Asks an agent a question and prints the answer. The agent can read this directory,
but change nothing. (Codex CLI can read all files that you can read.) Without a
question, or with -, Pollux reads the question from standard input. With both, the
standard input follows the question:

  pollux ask "what does this project do?"
  pollux ask --continue "and who uses it?"
  git diff | pollux ask "review this change"
  pollux ask --json-schema todo.schema.json "list the TODOs" | jq .
  pollux ask --changes "rename greet to hello" | git apply --allow-empty
  pollux ask --agent codex --agent gemini "is this lock needed?"

The agents for --agent are
` + strings.Join(askable(), ", ") + `
and the agents in your settings (pollux help config).
Without it, Pollux asks the agent in the setting bridge.agent, or else the first
installed one. Several agents answer at the same time, each under a heading.

On a terminal the answer appears while the model writes it, together with what the
model says before it uses a tool. A pipe or a file receives only the answer, at the end.
After Ctrl-C or a timeout it receives what has arrived. Everything else goes to
standard error.

The exit code is 0 only for a complete answer, 2 for wrong usage, 3 if --changes
has none, and 130 after Ctrl-C.

Pollux keeps the conversation for --continue: ` + "`pollux help bridge`" + ` says where. Set
POLLUX_ASK_HISTORY to off to keep nothing. The settings of pollux bridge apply, and
its flags --ssh, --socket, --via and --map.`,
		Args: cobra.ArbitraryArgs,
		RunE: a.run,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&a.agents, "agent", nil, "the `agent` to ask; may be repeated")
	flags.BoolVar(&a.all, "all", false, "ask all agents that are installed")
	cmd.RegisterFlagCompletionFunc("agent", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return askable(loadSettings().Agents()...), cobra.ShellCompDirectiveNoFileComp
	})
	flags.StringVarP(&a.in.Model, "model", "m", "", "the `model` to ask")
	flags.StringArrayVarP(&a.in.Files, "file", "f", nil, "attach a text or image `file`; may be repeated")
	flags.StringVarP(&a.in.WorkingDirectory, "dir", "C", "", "the `directory` to work in")
	flags.DurationVarP(&a.timeout, "timeout", "t", bridge.DefaultTimeout, "how long to wait for the answer, at most 30m")
	flags.IntVar(&a.words, "words", 0, "maximum length of the answer, in words")
	flags.BoolVarP(&a.resume, "continue", "c", false, "continue the last conversation in this directory")
	flags.StringVar(&a.in.SessionID, "session", "", "continue the conversation with this `ID`")
	flags.StringVar(&a.schema, "json-schema", "", "answer with JSON that is valid against the schema in this `file`")
	flags.BoolVar(&a.search, "search", false, "search the web")
	flags.BoolVar(&a.in.ChangeMode, "changes", false, "propose changes, and print them as a diff for git apply")
	flags.BoolVar(&a.asJSON, "json", false, "print the answer, the model and other details as JSON")
	flags.BoolVar(&a.stream, "stream", false, "print the text as it arrives into a pipe or a file, too, as on a terminal")
	a.logs.add(cmd)
	a.there.add(cmd)
	return cmd
}

// askNames are the words of errors: a user of the shell knows flags, and no
// parameters of a tool.
var askNames = bridge.Names{
	Agent: "--agent", Prompt: "the question", Query: "the question", Dir: "--dir", Model: "--model", Timeout: "--timeout",
	Length: "--words", Session: "--session",
	Duration: func(d time.Duration) string { return strings.TrimSuffix(d.String(), "0s") },
}

func (a *asking) run(cmd *cobra.Command, args []string) error {
	if err := a.check(cmd, args); err != nil {
		return err
	}
	if len(args) > 1 && len(a.agents) == 0 && slices.Contains(askable(), args[0]) {
		say(a.streams.Err, "%s is a word of this question: to ask that agent, use --agent %s", args[0], args[0])
	}
	if err := a.openHistory(); err != nil {
		return err
	}
	var cfg bridge.Config
	change := func(c *bridge.Config) {
		c.Names, c.History = &askNames, a.history
		if !a.there.away() { // no process stays warm for one call; the pool there may have one
			c.Kind, c.NoPool = agent.Spawned, true
		}
		cfg = *c
	}
	return withBridge(cmd.Context(), a.streams, &a.logs, &a.there, change, func(ctx context.Context, b *bridge.Bridge) error {
		row, err := a.choose(b)
		if err != nil {
			return err
		}
		if row == cfg.Agent {
			if err := a.offerAgent(ctx, cfg); errors.As(err, new(exitError)) {
				return err
			} else if err != nil {
				return b.OrOthers(row, err)
			}
		}
		if err := a.find(ctx, cfg); err != nil {
			return err
		}
		if len(a.in.Agents) > 0 {
			return a.panel(ctx, b)
		}
		return a.ask(ctx, b, row)
	})
}

// choose sets the agents to ask from the flags, and returns the only or the first one.
func (a *asking) choose(b *bridge.Bridge) (*agent.Agent, error) {
	var names []string
	for _, name := range a.agents {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if a.all {
		names = b.Names()
	}
	switch {
	case a.all && len(a.agents) > 0:
		return nil, usageError{errors.New("--all cannot be combined with --agent")}
	case a.all && len(names) == 0:
		return nil, errors.New("no agent is installed that can be asked: `pollux doctor` says what is missing")
	case a.all && a.there.away():
		return nil, usageError{errors.New("--all cannot be combined with --ssh, --socket or --via: name the agents with --agent")}
	case len(names) == 1 && !a.all:
		a.in.Agent = names[0]
	case len(names) > 0:
		a.in.Agents = names
		if a.resume || a.stream {
			return nil, usageError{errors.New("several agents cannot be combined with --continue or --stream: ask one")}
		}
		if a.search || a.shape != nil || a.in.Model != "" {
			return nil, usageError{errors.New("several agents cannot be combined with --search, --json-schema or --model: ask one")}
		}
		if err := b.CheckPanel(a.in); err != nil {
			return nil, usageError{err}
		}
		return b.Chosen(bridge.Common{Agent: names[0]}, false)
	}
	row, err := b.Chosen(a.in.Common, a.search)
	if err != nil {
		return nil, usageError{err}
	}
	return row, nil
}

// panel asks several agents, and prints each answer when it arrives.
func (a *asking) panel(ctx context.Context, b *bridge.Bridge) error {
	a.screen = newScreen(a.streams, agents.Default(), false)
	failed, printed := 0, error(nil)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	answers, err := b.Panel(asking, a.in, a.screen.report(), func(answer bridge.PanelAnswer) {
		if answer.Error != "" {
			failed++
		}
		if a.asJSON || printed != nil {
			return
		}
		a.screen.clear()
		text := "## " + b.Heading(answer) + "\n\n"
		switch cause := context.Cause(ctx); {
		case cause != nil && answer.Error == cause.Error():
			text += "[interrupted: the answer is incomplete]\n\n"
		case answer.Error != "":
			text += "[" + answer.Error + "]\n\n"
		}
		if answer.Text != "" {
			text += strings.TrimSpace(answer.Text) + "\n\n"
		}
		if _, printed = io.WriteString(a.streams.Out, forOutput(a.streams.Out, text)); printed != nil {
			stop() // no one waits for the others
		}
	})
	a.screen.clear()
	switch {
	case err != nil:
		return err
	case a.asJSON:
		printed = printJSON(a.streams.Out, answers)
	}
	if ctx.Err() != nil {
		return interrupted
	}
	if printed == nil && failed > 0 {
		say(a.streams.Err, "%d of %d agents gave no complete answer", failed, len(answers))
		return exitError{1}
	}
	return printed
}

// check reads the question and the schema, and checks the flags.
func (a *asking) check(cmd *cobra.Command, args []string) (err error) {
	in := &a.in
	wrong := func(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
	switch {
	case a.timeout < time.Millisecond || a.timeout > bridge.MaxTimeout:
		return wrong("--timeout is %s: use 1ms to %s", a.timeout, bridge.MaxTimeout)
	case cmd.Flags().Changed("words") && (a.words < 1 || a.words > bridge.MaxWords):
		return wrong("--words is %d: use a number from 1 to %d", a.words, bridge.MaxWords)
	case a.schema != "" && (in.ChangeMode || a.search):
		return wrong("--json-schema cannot be combined with --changes or --search")
	case a.search && (in.ChangeMode || len(in.Files) > 0):
		return wrong("--search cannot be combined with --changes or --file")
	case a.resume && in.SessionID != "":
		return wrong("--continue cannot be combined with --session: --session names the conversation")
	case (a.resume || in.SessionID != "") && (a.search || a.schema != ""):
		return wrong("--continue and --session cannot be combined with --search or --json-schema")
	}
	ms := bridge.Integer(a.timeout.Milliseconds())
	in.Timeout, in.RequireFiles = &ms, true
	if a.words > 0 {
		w := bridge.Integer(a.words)
		in.MaxResponseLength = &w
	}
	if a.schema != "" {
		if a.shape, err = os.ReadFile(a.schema); err != nil {
			return wrong("--json-schema: %v: name a file with a JSON Schema", err)
		}
		if err := bridge.CheckSchema(a.shape); err != nil {
			return wrong("--json-schema %s: %w", a.schema, err)
		}
	}
	if in.Prompt, err = question(a.streams.In, args); err != nil {
		return err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return wrong("no question given: pass it as an argument or on standard input")
	}
	return nil
}

// offerAgent offers to download the agent, as pollux run does, if it is not installed on
// this machine. Without a terminal, the request fails and names the next step.
func (a *asking) offerAgent(ctx context.Context, cfg bridge.Config) error {
	l := ide.LaunchOf(cfg.Agent.Command)
	if a.there.away() || cfg.Source.Command != cfg.Agent.Command || isInstalled(l) || !isTerminal(a.streams.In) {
		return nil
	}
	_, err := offerDownload(ctx, a.streams, l)
	return err
}

// ask asks the question and prints the answer.
func (a *asking) ask(ctx context.Context, b *bridge.Bridge, row *agent.Agent) error {
	plain := !a.asJSON && !a.in.ChangeMode && a.shape == nil
	a.screen = newScreen(a.streams, row, plain)
	a.screen.live = a.screen.live || plain && a.stream
	a.in.Emit = a.screen.event
	asking, stop := context.WithCancel(ctx)
	defer stop()
	a.screen.stop = stop
	answer, err := a.call(asking, b)
	a.screen.clear()
	switch unwritten := a.screen.err(); {
	case unwritten != nil:
		return unwritten
	case err == nil:
		err = a.print(answer)
	default:
		err = a.failed(ctx, err, plain)
	}
	for _, n := range answer.Notes {
		say(a.streams.Err, "%s", n)
	}
	if err == nil && answer.Changes != nil && !a.asJSON && isTerminal(a.streams.Out) {
		say(a.streams.Err, "no file has changed: to apply the changes of an answer, end the command with `| git apply --allow-empty`")
	}
	if err == nil && a.in.Agent == "" && isTerminal(a.streams.Out) && len(b.Names()) > 1 {
		say(a.streams.Err, "%s has answered (--agent asks another one)", row.DisplayName)
	}
	return err
}

// call asks the bridge.
func (a *asking) call(ctx context.Context, b *bridge.Bridge) (bridge.Answer, error) {
	var in bridge.Input = a.in
	switch {
	case a.shape != nil:
		in = bridge.StructuredInput{Common: a.in.Common, Prompt: a.in.Prompt, Schema: a.shape, Files: a.in.Files}
	case a.search:
		in = bridge.SearchInput{Common: a.in.Common, Query: a.in.Prompt, MaxResponseLength: a.in.MaxResponseLength}
	}
	return b.Ask(ctx, in, a.screen.report())
}

// print prints an answer. A part of one is printed too, and is a failure.
func (a *asking) print(answer bridge.Answer) (err error) {
	out := a.streams.Out
	c := answer.Changes
	switch {
	case a.asJSON:
		err = printJSON(out, jsonAnswer{Text: answer.Text, Changes: c, Meta: answer.Meta})
	case c != nil: // print only the diff, for git apply
		if c.Response != "" {
			a.screen.tell(c.Response)
		}
		_, err = io.WriteString(out, forOutput(out, c.Diff))
	case answer.Cut != "":
		err = a.screen.part(answer.Text)
	default:
		err = a.screen.answer(answer.Text)
	}
	switch {
	case err != nil:
		return err
	case answer.Cut != "":
		say(a.streams.Err, "the answer is incomplete, because it %s: ask for less, or raise --timeout (at most %s)",
			answer.Cut, askNames.Duration(bridge.MaxTimeout))
		return exitError{1}
	case c != nil && c.Diff == "":
		say(a.streams.Err, "no changes were proposed, so there is no diff (git apply accepts that with --allow-empty)")
		return noChanges
	}
	return nil
}

// failed prints the part of the answer that arrived, and the error.
func (a *asking) failed(ctx context.Context, err error, plain bool) error {
	if errors.As(err, new(bridge.InputError)) {
		return usageError{err}
	}
	part := ""
	if f := (*bridge.Failure)(nil); errors.As(err, &f) {
		part = f.Partial
	}
	if plain {
		if e := a.screen.part(part); e != nil {
			return e
		}
	} else if part != "" {
		a.screen.tell(part)
	}
	if ctx.Err() == nil {
		say(a.streams.Err, "%s", err)
		return exitError{1}
	}
	if part != "" {
		say(a.streams.Err, "interrupted: the answer is incomplete")
	}
	return interrupted
}

type jsonAnswer struct {
	Text    string          `json:"text"`
	Changes *bridge.Changes `json:"changes,omitempty"`
	Meta    bridge.Meta     `json:"meta"`
}

// question returns the question: the arguments, followed by the standard input.
func question(in io.Reader, args []string) (string, error) {
	words := strings.Join(args, " ")
	if words == "-" {
		words = ""
	}
	if isTerminal(in) {
		return words, nil
	}
	if f, ok := in.(*os.File); ok && words != "" {
		// Other kinds of standard input may stay open and never end.
		if info, err := f.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe) == 0 && !info.Mode().IsRegular() {
			return words, nil
		}
	}
	piped, err := io.ReadAll(io.LimitReader(in, bridge.MaxPrompt+1))
	if err != nil {
		return "", err
	}
	if len(piped) > bridge.MaxPrompt {
		return "", fmt.Errorf("the standard input has more than %d bytes, which is the limit of a question: "+
			"send less, or attach files with --file", bridge.MaxPrompt)
	}
	if words == "" || len(piped) == 0 {
		return words + string(piped), nil
	}
	return words + "\n\n" + string(piped), nil
}
