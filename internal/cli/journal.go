package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/companion/journal"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

func newJournal(streams IO) *cobra.Command {
	var asJSON, noPager bool
	var filter journalFilter
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "List, show and restore proposals and your edits",
		Long: `Pollux keeps every change that an agent proposed, your edits to it, and the file as
it was, in a private directory: the latest 1,000, up to 256 MiB, for about two weeks. Nothing is
lost when an agent, an editor or Pollux ends at the wrong moment.

The list shows the latest entry first. Where a command takes an ID, a unique
prefix of it is enough, and @ is the latest entry (in PowerShell, write "@"). Paths
are relative to the working directory if the file is in it.

` + stateHelp(),
		Example: `  pollux journal --here --state rejected
  pollux journal show --diff @
  pollux journal restore 0mwr1o8`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withJournal(func(j *journal.Journal) error { return listEntries(cmd.Context(), streams, j, filter, asJSON, noPager) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with absolute paths")
	cmd.Flags().StringVar(&filter.file, "file", "", "list only entries of this `path`: a file, or a directory and everything in it")
	cmd.Flags().StringSliceVar(&filter.states, "state", nil,
		"list only entries in one of these `states`, such as rejected,closed; also the words that the list shows")
	cmd.Flags().BoolVar(&filter.here, "here", false, "list only entries of files in the working directory")
	cmd.PersistentFlags().BoolVar(&noPager, "no-pager", false, "do not send the output to $PAGER on a terminal")
	cmd.AddCommand(newJournalShow(streams, &noPager), newJournalRestore(streams))
	return cmd
}

// listEntries prints the entries that match the filter.
func listEntries(ctx context.Context, streams IO, j *journal.Journal, filter journalFilter, asJSON, noPager bool) error {
	keep, err := filter.matcher()
	if err != nil {
		return err
	}
	all, err := j.List()
	if err != nil {
		return err
	}
	entries := slices.DeleteFunc(append([]journal.Entry{}, all...), func(e journal.Entry) bool { return !keep(e) })
	switch {
	case asJSON:
		return printJSON(streams.Out, entries)
	case len(all) == 0:
		fmt.Fprintln(streams.Out, "The journal is empty.")
		return nil
	case len(entries) == 0:
		fmt.Fprintln(streams.Out, "No entry matches.")
		return nil
	}
	var list strings.Builder
	l := newListing(&list, coloured(streams.Out), all)
	for _, e := range entries {
		l.print(j, e)
	}
	return page(ctx, streams, noPager, list.String())
}

func newJournalShow(streams IO, noPager *bool) *cobra.Command {
	var proposal, asDiff bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print an entry's text, or its diff",
		Long: `Prints the proposed text with your edits. ID is an entry's ID, a unique prefix of
it, or @ for the latest entry.

With --diff, prints what the change does to the file as it was before. Entries
without that text (entries of an older Pollux, of files over 1 MiB, and of files that
a restore replaced) are compared with the file on disk.`,
		Args:              oneEntry,
		ValidArgsFunction: completeEntry,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJournal(func(j *journal.Journal) error {
				text, err := shownText(streams, j, args[0], proposal, asDiff)
				if err != nil {
					return err
				}
				return page(cmd.Context(), streams, *noPager, text)
			})
		},
	}
	cmd.Flags().BoolVar(&proposal, "proposal", false, "print the agent's proposal, without your edits")
	cmd.Flags().BoolVar(&asDiff, "diff", false, "print a unified diff")
	return cmd
}

// shownText returns the text of an entry, or its diff, as the output shows it.
func shownText(streams IO, j *journal.Journal, ref string, proposal, asDiff bool) (string, error) {
	id, err := j.Resolve(ref)
	if err != nil {
		return "", err
	}
	get := j.Text
	if proposal {
		get = j.Proposal
	}
	text, err := get(id)
	if err != nil || !asDiff {
		return forOutput(streams.Out, text), err
	}
	text, note, err := diffOf(j, id, text)
	if err != nil {
		return "", err
	}
	if note != "" {
		say(streams.Err, "%s", note)
	}
	text = forOutput(streams.Out, text)
	if coloured(streams.Out) {
		text = colouredDiff(text)
	}
	return text, nil
}

func newJournalRestore(streams IO) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "restore ID",
		Short: "Write an entry's text to its file",
		Long: `Writes the text to the file it was proposed for, or to another file. The current
content of the file goes into the journal first, so that restoring @ after it undoes
a restore. ID is an entry's ID, a unique prefix of it, or @ for the latest entry. If
symbolic links have changed and the path now leads to another file, nothing is
written: name the file with --to.`,
		Args:              oneEntry,
		ValidArgsFunction: completeEntry,
		RunE: func(_ *cobra.Command, args []string) error {
			return withJournal(func(j *journal.Journal) error { return restoreEntry(streams, j, args[0], to) })
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write this `file` instead")
	return cmd
}

// restoreEntry writes the text of an entry to its file, or to another one.
func restoreEntry(streams IO, j *journal.Journal, ref, to string) error {
	id, err := j.Resolve(ref)
	if err != nil {
		return err
	}
	e, err := j.Get(id)
	if err != nil {
		return err
	}
	path, err := target(e, to)
	if err != nil {
		return err
	}
	replaced, err := j.Restore(e.ID, path)
	if err != nil {
		return err
	}
	say(streams.Err, "wrote %s", termtext.Visible(path))
	if replaced != "" {
		say(streams.Err, "to undo this: `pollux journal restore %s`", replaced)
	}
	return nil
}

func oneEntry(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("name one entry by its ID, or @ for the latest: `pollux journal` lists them")
	}
	return nil
}

// maxCompletions limits how many entries the shell offers.
const maxCompletions = 50

// completeEntry completes the ID of an entry, the latest first.
func completeEntry(_ *cobra.Command, args []string, prefix string) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if len(args) > 0 {
		return nil, directive
	}
	err := withJournal(func(j *journal.Journal) error {
		all, err := j.List()
		l := newListing(io.Discard, false, all)
		for _, e := range all {
			if strings.HasPrefix(e.ID, prefix) && len(ids) < maxCompletions {
				ids = append(ids, cobra.CompletionWithDesc(e.ID, fmt.Sprintf("%s (%s)", l.path(e), e.State)))
			}
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return ids, directive
}

// target returns the path of the file that a restore writes: to, or the file of
// the entry. The path contains no symbolic links.
func target(e journal.Entry, to string) (string, error) {
	if to == "" {
		path := paths.Real(e.Path)
		if e.Real != "" && path != e.Real {
			return "", fmt.Errorf("%s was %s when the change was proposed and is %s now: name the file to write with --to",
				e.Path, e.Real, path)
		}
		return path, nil
	}
	if info, err := os.Stat(filepath.Dir(to)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("the directory %s does not exist: create it first", filepath.Dir(to))
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		return "", fmt.Errorf("%s is a directory: name a file in it", to)
	}
	path, err := filepath.Abs(to)
	return paths.Real(path), err
}

// withJournal calls f with the user's journal.
func withJournal(f func(*journal.Journal) error) error {
	j, err := journal.Default()
	if err != nil {
		return err
	}
	defer j.Wait()
	return f(j)
}
