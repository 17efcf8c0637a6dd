package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/ide/geminiide/conformance"
	"pollux/internal/termtext"
)

func newConformance(streams IO) *cobra.Command {
	var asJSON, interactive, slow, verbose bool
	actions := map[conformance.Action]*struct{ help, ask, command string }{
		conformance.Open: {help: "a shell `command` that opens $FILE in the editor", ask: "open"},
		conformance.Edit: {help: "a shell `command` that changes the diff of $FILE to the text in the file $TEXT",
			ask: "change the right side of the diff of"},
		conformance.Accept: {help: "a shell `command` that accepts the diff of $FILE", ask: "accept the diff of"},
		conformance.Reject: {help: "a shell `command` that rejects the diff of $FILE", ask: "reject the diff of"},
	}
	cmd := &cobra.Command{
		Use:   "conformance [flags] -- COMMAND [ARGUMENT...]",
		Short: "Check any Gemini CLI companion against the specification",
		Long: `Starts a companion, Pollux's or any other, in a new directory, connects to it as
Gemini CLI does, and reports whether it follows the companion specification. MUST
and SHOULD are requirements of the specification. CLI marks what else the real
Gemini CLI needs, and SAFE what keeps other users and web pages out. The exit code
is 1 if a check failed.

Some checks need a user's action in the editor. Give a shell command for each
action, which gets the file in $FILE (and for --edit the path of the new text in
$TEXT), or do them yourself with --interactive. Otherwise these checks are
skipped. On Windows the shell is cmd: write %FILE% and %TEXT%.

The companion's workspace is its working directory, and its temporary directory
is in TMPDIR, TMP and TEMP. With --interactive the editor needs a separate window:

    pollux conformance --interactive -- xterm -e nvim one.txt

` + "`pollux help conformance`" + ` lists where Gemini CLI and the specification differ.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() != 0 {
				return usageError{errors.New("name the command that starts the companion, after --")}
			}
			if interactive && !isTerminal(streams.In) {
				return usageError{errors.New("--interactive needs a terminal")}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			cfg := conformance.Config{Command: args, Actions: make(map[conformance.Action]string), Slow: slow, Errors: io.Discard}
			if verbose {
				cfg.Errors = streams.Err
			}
			for a, how := range actions {
				if how.command != "" {
					cfg.Actions[a] = how.command
				}
			}
			if interactive {
				in := bufio.NewReader(streams.In)
				cfg.Ask = func(a conformance.Action, file, text string) error {
					fmt.Fprintf(streams.Err, "\nIn the editor: %s %s\n", actions[a].ask, file)
					if a != conformance.Edit { // the checks detect the other actions
						return nil
					}
					fmt.Fprintf(streams.Err, "to these lines, and press Enter here:\n%s", text)
					_, err := readLine(ctx, in)
					return err
				}
			}
			if !asJSON {
				cfg.Emit = func(r conformance.Result) {
					fmt.Fprintf(streams.Out, "%-8s %-6s %-24s %s\n", r.Outcome, r.Level, r.ID, r.Text)
					if r.Detail != "" {
						fmt.Fprintf(streams.Out, "%41s-> %s\n", "", termtext.Visible(strings.TrimSpace(r.Detail)))
					}
				}
			}
			report, err := conformance.Run(ctx, cfg)
			if ctx.Err() != nil {
				return interrupted
			}
			if err != nil {
				if !verbose {
					err = fmt.Errorf("%w; --verbose shows its standard error", err)
				}
				return err
			}
			if asJSON {
				if err := printJSON(streams.Out, report); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(streams.Out, "\n%s: %d passed, %d failed, %s, %d not checked\n",
					termtext.Visible(report.Editor.DisplayName),
					report.Count(conformance.Pass), report.Count(conformance.Fail),
					termtext.Count(report.Count(conformance.Warning), "warning"), report.Count(conformance.Skipped))
			}
			if report.Count(conformance.Fail) > 0 {
				return exitError{1}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	for a, how := range actions {
		fs.StringVar(&how.command, string(a), "", how.help)
	}
	fs.BoolVar(&asJSON, "json", false, "print JSON")
	fs.BoolVar(&interactive, "interactive", false, "ask you to do the actions for which you give no command")
	fs.BoolVar(&slow, "slow", false, "also run checks that take minutes")
	fs.BoolVar(&verbose, "verbose", false, "show the companion's standard error")
	return cmd
}
