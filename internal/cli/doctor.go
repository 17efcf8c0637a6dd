package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/config"
	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/disk"
	"pollux/internal/termtext"
)

func newDoctor(streams IO) *cobra.Command {
	var asJSON, fix, yes, toFile bool
	cmd := &cobra.Command{
		Use:   "doctor [NAME...]",
		Short: "Find out why an agent does not connect, and what to do",
		Long: `Examines the agents and editors that you have, as if they were started here: which
companion an agent looks for and chooses, whether that answers, and what in the
settings, the terminal or the system is in the way. The causes that it finds come
first; what works takes one line. It sends no prompt, so it uses no quota.

Run it where you start the agent: in the same terminal and directory. For all
details, name an agent or an editor, or the bridge:
` + wrap(strings.Join(doctorNames(config.Defaults()), ", "), 80) + `.

` + "`pollux doctor bridge`" + ` tries what a call needs, up to a warm process and a pool.

The exit code is 0 if what you have works, and 1 if something failed.

--fix fixes what Pollux can fix, after showing it: it removes files left behind by
companions that have ended, makes your files private, and turns on
Gemini CLI's IDE mode. --report writes a text for a bug report. ` + "`pollux help\ndoctor`" + ` lists the checks by symptom.`,
		Args: func(_ *cobra.Command, args []string) error {
			v := loadSettings()
			all := doctorNames(v)
			for _, name := range args {
				if s := similar(name, all); len(s) > 0 && !slices.Contains(all, name) {
					return unknown("name", name, s)
				}
			}
			if len(args) == 0 {
				return nil
			}
			_, err := doctor.Select(doctorParts(v), args)
			return err
		},
		ValidArgsFunction: func(_ *cobra.Command, named []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return without(doctorNames(loadSettings()), named), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if yes && !fix {
				return usageError{errors.New("--yes needs --fix")}
			}
			if toFile && (fix || asJSON) {
				return usageError{errors.New("--report goes with neither --fix nor --json")}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			if toFile {
				return reportToFile(ctx, streams, args)
			}
			report, err := examine(ctx, streams, args, asJSON)
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
				if report, err = examine(ctx, streams, args, asJSON); err != nil {
					return err
				}
			}
			if asJSON {
				if err := printJSON(streams.Out, report); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(streams.Out, "\n%s\n", summary(report))
			}
			if report.Count(doctor.Failed) > 0 {
				return exitError{1}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&fix, "fix", false, "fix what Pollux can fix, after showing it")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "with --fix, do not ask")
	cmd.Flags().BoolVar(&toFile, "report", false, "write a text for a bug report, without secrets and paths, to a file")
	return cmd
}

// summary returns the last line for a report.
func summary(report doctor.Report) string {
	var all []string
	if n := report.Count(doctor.Failed); n > 0 {
		all = append(all, fmt.Sprintf("%d failed", n))
	}
	if n := report.Count(doctor.Warning); n > 0 {
		all = append(all, termtext.Count(n, "warning"))
	}
	return cmp.Or(strings.Join(all, ", "), "Nothing is wrong.")
}

// examine examines what the arguments name or, without any, what the user has. It prints the
// findings unless quiet is set.
func examine(ctx context.Context, streams IO, args []string, quiet bool) (doctor.Report, error) {
	cfg, err := doctorConfig(ctx)
	if err != nil {
		return doctor.Report{}, err
	}
	cfg.Overview = len(args) == 0
	v := loadSettings()
	if slices.Contains(args, geminiide.GeminiCommand) && !slices.Contains(args, doctor.Bridge) && bridgeUsed() {
		args = append(slices.Clone(args), doctor.Bridge)
	}
	parts, err := doctor.Select(doctorParts(v), args)
	if err != nil {
		return doctor.Report{}, err
	}
	if some := slices.ContainsFunc(parts, func(p doctor.Part) bool { return p.Agent }); cfg.Overview && some {
		parts = append(parts, doctor.Part{Name: "editors", Heading: "Editors", Checks: []doctor.Check{checkOtherEditors}})
	}
	if disk.Exists(v.Path) {
		parts = slices.Insert(parts, 0, doctor.Part{
			Name: doctor.Settings, Heading: "Pollux's settings", Checks: []doctor.Check{checkSettings},
		})
	}
	var out io.Writer = proseWriter{streams.Out}
	if quiet {
		out = io.Discard
	}
	fmt.Fprintf(out, "For agents started in %s\n", termtext.Visible(cfg.Dir))
	var well []func()
	cfg.Done = func(p doctor.Part, r doctor.Report) {
		if cfg.Overview && r.Causes() == 0 {
			well = append(well, func() { p.PrintLine(out, r) })
		} else {
			p.Print(out, r, !cfg.Overview)
		}
	}
	report := doctor.Examine(ctx, cfg, parts)
	if len(well) > 0 {
		fmt.Fprintln(out)
	}
	for _, print := range well {
		print()
	}
	if ctx.Err() != nil {
		return report, interrupted
	}
	return report, nil
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
		fmt.Fprintln(streams.Err)
		say(streams.Err, "nothing was changed")
		return interrupted
	}
	return report.Fix()
}

// doctorNames returns what doctor's user can name, with these settings.
func doctorNames(v *config.Values) []string {
	return doctor.Names(doctorParts(v))
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
