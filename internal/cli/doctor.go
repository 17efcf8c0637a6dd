package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	askchecks "pollux/internal/agent/checks"
	geminichecks "pollux/internal/agent/gemini/checks"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/agent/shared"
	poolchecks "pollux/internal/agent/shared/checks"
	"pollux/internal/config"
	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/ide/claudeide"
	claudechecks "pollux/internal/ide/claudeide/checks"
	"pollux/internal/ide/codexide"
	codexchecks "pollux/internal/ide/codexide/checks"
	"pollux/internal/ide/copilotide"
	copilotchecks "pollux/internal/ide/copilotide/checks"
	"pollux/internal/ide/geminiide"
	protocolchecks "pollux/internal/ide/geminiide/checks"
	"pollux/internal/termtext"
)

func newDoctor(streams IO) *cobra.Command {
	var asJSON, fix, yes bool
	cmd := &cobra.Command{
		Use:   "doctor [AGENT...]",
		Short: "Find out why an agent does not connect, and what to do",
		Long: `Retraces what each agent does when it starts here: which companion it looks for
and chooses, whether that answers, and what in the settings, the terminal or the
system prevents a connection. Then it tries what the bridge needs, up to a warm
process of Gemini CLI and a pool. It sends no prompt, so it uses no quota. (Gemini
CLI records the session in its own directory, ~/.gemini, as it always does.)

Doctor examines the agents that are on the PATH or have a directory of settings,
and names the others in one line. To examine only some, or one that is not
installed, name them: ` + strings.Join(doctorAgents(), ", ") + `.

Run it where you start the CLI: in the same terminal and directory. Each line is
ok, a warning, or failed with the cause and the next step. The exit code is 1 if
something failed.

--fix fixes what Pollux can fix, after showing it: it removes files left behind
by companions that have ended, makes your files private, and turns
on Gemini CLI's IDE mode. ` + "`pollux help doctor`" + ` lists the symptoms and
causes.`,
		Args: func(_ *cobra.Command, args []string) error {
			all := doctorAgents()
			for _, name := range args {
				if s := similar(name, all); len(s) > 0 && !slices.Contains(all, name) {
					return unknown("agent", name, s)
				}
			}
			_, err := doctor.Select(doctorParts("", agent.Wall{}), args)
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, named []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return without(doctorAgents(), named), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if yes && !fix {
				return usageError{errors.New("--yes needs --fix")}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			examine := func(quiet bool) (doctor.Report, error) {
				cfg, err := doctorConfig(ctx)
				if err != nil {
					return doctor.Report{}, err
				}
				v, command := loadSettings(), ""
				if v.Origin("bridge.command") != (config.Origin{}) {
					command = v.Text("bridge.command")
				}
				parts, err := doctor.Select(doctorParts(command, thisWall(v.Text("bridge.wall"))), args)
				if err != nil {
					return doctor.Report{}, err
				}
				if exists(v.Path) {
					parts = slices.Insert(parts, 0, doctor.Part{
						Name: "settings", Heading: "Pollux's settings", Checks: []doctor.Check{checkSettings},
					})
				}
				if !quiet {
					fmt.Fprintf(streams.Out, "For agents started in %s\n", termtext.Visible(cfg.Dir))
					cfg.Emit = printer(streams.Out, parts)
				}
				report := doctor.Examine(ctx, cfg, parts)
				if ctx.Err() != nil {
					return report, interrupted
				}
				return report, nil
			}
			report, err := examine(asJSON)
			if err != nil {
				return err
			}
			if fixes := report.Fixes(); fix && len(fixes) > 0 {
				fmt.Fprintln(streams.Err, "\npollux doctor can")
				for _, f := range fixes {
					fmt.Fprintf(streams.Err, "  - %s\n", f)
				}
				if err := applyFixes(ctx, streams, report, yes); err != nil {
					if asJSON && !errors.Is(err, interrupted) {
						err = errors.Join(err, printJSON(streams.Out, report))
					}
					return err
				}
				fmt.Fprint(streams.Err, "Done. Checking again:\n\n")
				if report, err = examine(asJSON); err != nil {
					return err
				}
			}
			failed, warnings := report.Count(doctor.Failed), report.Count(doctor.Warning)
			switch {
			case asJSON:
				if err := printJSON(streams.Out, report); err != nil {
					return err
				}
			case failed+warnings == 0:
				fmt.Fprintln(streams.Out, "\nNothing is wrong.")
			default:
				fmt.Fprintf(streams.Out, "\n%d failed, %s\n", failed, termtext.Count(warnings, "warning"))
			}
			if failed > 0 {
				return exitError{1}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&fix, "fix", false, "fix what Pollux can fix, after showing it")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "with --fix, do not ask")
	return cmd
}

// applyFixes applies the report's fixes if the user agrees, now or beforehand.
func applyFixes(ctx context.Context, streams IO, report doctor.Report, beforehand bool) error {
	if !beforehand {
		yes, err := confirm(ctx, streams, "Proceed?")
		switch {
		case ctx.Err() != nil: // see below
		case err != nil:
			fmt.Fprintln(streams.Err)
			return errors.New("not a terminal; nothing was changed: use --fix --yes")
		case !yes:
			return errors.New("nothing was changed")
		}
	}
	if ctx.Err() != nil {
		fmt.Fprintln(streams.Err, "\npollux: nothing was changed")
		return interrupted
	}
	return report.Fix()
}

// printer returns a function that prints findings, with a heading above each part.
func printer(w io.Writer, parts []doctor.Part) func(doctor.Finding) {
	last := ""
	return func(f doctor.Finding) {
		if f.Part != last {
			last = f.Part
			i := slices.IndexFunc(parts, func(p doctor.Part) bool { return p.Name == f.Part })
			fmt.Fprintf(w, "\n%s\n", parts[i].Heading)
		}
		doctor.Print(w, f)
	}
}

// doctorAgents returns the names of the agents that doctor knows.
func doctorAgents() []string { return doctor.Names(doctorParts("", agent.Wall{})) }

// doctorParts lists doctor's checks in order, with the command of the setting
// bridge.command, if it is set, and the wall of the bridge. Each agent and each protocol defines its own. Add new ones
// here.
func doctorParts(geminiCommand string, wall agent.Wall) []doctor.Part {
	gemini := &geminichecks.CLI{Command: geminiCommand, Wall: wall, Probe: agents.Probe}
	protocol := new(protocolchecks.Protocol)
	home := func() (string, error) { return settings.Home(nil) }
	hasGemini := func() bool {
		return gemini.Command != "" || doctor.Installed(geminiide.GeminiCommand, home)()
	}
	const geminiTitle = "Gemini CLI"
	parts := []doctor.Part{
		{
			Name: doctor.Companion, Heading: geminiTitle, Agent: geminiide.GeminiCommand, Title: geminiTitle, Here: hasGemini,
			Checks: []doctor.Check{
				gemini.Program, protocol.Release, gemini.Node, gemini.Settings, gemini.Terminal,
				protocol.Variables, protocol.Companion, gemini.Proxy, gemini.Disk,
			},
		},
		{
			Name: doctor.Bridge, Heading: "The bridge, with Gemini CLI",
			Agent: geminiide.GeminiCommand, Title: geminiTitle, Here: hasGemini, Checks: []doctor.Check{gemini.Bridge, checkPool},
		},
	}
	for _, agent := range []struct {
		command string
		home    func() (string, error)
		check   doctor.Check
	}{
		// Companions make Qwen Code's directory, so only the PATH shows that it is installed.
		{geminiide.QwenCommand, func() (string, error) { return "", fs.ErrNotExist }, protocolchecks.Qwen},
		{claudeide.ClaudeCommand, claudechecks.ClaudeHome, claudechecks.Claude},
		{claudeide.OpencodeCommand, claudechecks.OpencodeHome, claudechecks.Opencode},
		{copilotide.Command, copilotide.Home, copilotchecks.Copilot},
		{codexide.Command, codexide.Home, codexchecks.Codex},
	} {
		l := ide.LaunchOf(agent.command)
		checks := []doctor.Check{doctor.Command(l.Name, l.Title, l.Package), agent.check}
		for _, row := range agents.Others() {
			if row.Name == l.Name {
				asked := &askchecks.Asked{Agent: row, Source: source(row), Wall: wall}
				checks = append(checks, asked.Check)
			}
		}
		parts = append(parts, doctor.Part{
			Name: l.Name, Heading: l.Title, Agent: l.Name, Title: l.Title,
			Here:   doctor.Installed(l.Name, agent.home),
			Checks: checks,
		})
	}
	return parts
}

// checkSettings checks the user's file of settings.
func checkSettings(_ context.Context, c *doctor.Checker) {
	v := loadSettings()
	valid := true
	for _, p := range v.Problems {
		if p.File != "" {
			c.Fail("config", "run `pollux config edit`, then restart editors and MCP clients", "%s", p)
			valid = false
		}
	}
	if valid {
		c.OK("config", "%s is valid", v.Path)
	}
}

// checkPool checks the pool that bridges which start in this environment use.
func checkPool(ctx context.Context, c *doctor.Checker) {
	if c.Failed("config") {
		return // no bridge starts a pool
	}
	cfg, err := bridgeConfig()
	offLine := ""
	if from := loadSettings().Origin("pool.enabled"); from.Source() == "file" {
		offLine = from.String()
	}
	p := &poolchecks.Pool{
		Err: err, OffLine: offLine, Off: cfg.NoPool, Settings: cfg.PoolSettings(),
		Socket: func() (string, error) { return shared.SocketPath(build()) },
		Connect: func(ctx context.Context) (io.ReadWriteCloser, error) {
			connect, err := localPool(cfg)
			if err != nil {
				return nil, err
			}
			return connect(ctx)
		},
	}
	p.Check(ctx, c)
}

// without returns the words that are not among the others.
func without(words, others []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return slices.Contains(others, word) })
}

func doctorConfig(ctx context.Context) (doctor.Config, error) {
	dir, err := editor.WorkingDir()
	if err != nil {
		return doctor.Config{}, err
	}
	running, _ := editor.List(ctx, self()) // doctor.Disk reports the cause of an error
	return doctor.Config{Dir: dir, Version: version(), Running: running}, nil
}
