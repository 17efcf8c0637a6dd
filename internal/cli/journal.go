package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"pollux/internal/companion/journal"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

func newJournal(streams IO) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "List, show and restore proposals and your edits",
		Long: `Pollux keeps every change that an agent proposed, and your edits to it, in a
private directory: the latest 1,000, for at least two weeks. Nothing is lost when
an agent, an editor or Pollux ends at the wrong moment.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withJournal(func(j *journal.Journal) error {
				entries, err := j.List()
				if err != nil {
					return err
				}
				if asJSON {
					if entries == nil {
						entries = []journal.Entry{}
					}
					return printJSON(streams.Out, entries)
				}
				if len(entries) == 0 {
					fmt.Fprintln(streams.Out, "The journal is empty.")
				}
				for _, e := range entries {
					note := string(e.State)
					if e.Unwritten {
						note += ", not written"
					}
					if e.Edited {
						note += ", edited"
					}
					fmt.Fprintf(streams.Out, "%s  %s  %s  (%s)\n", e.ID, e.Time.Format("2006-01-02 15:04:05"),
						termtext.Visible(e.Path), note)
					if e.Unwritten {
						fmt.Fprintf(streams.Out, "    pollux journal restore %s\n", e.ID)
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")

	var proposal bool
	show := &cobra.Command{
		Use:   "show ID",
		Short: "Print an entry's text",
		Args:  oneEntry,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJournal(func(j *journal.Journal) error {
				get := j.Text
				if proposal {
					get = j.Proposal
				}
				text, err := get(args[0])
				if err == nil {
					_, err = io.WriteString(streams.Out, forOutput(streams.Out, text))
				}
				return err
			})
		},
	}
	show.Flags().BoolVar(&proposal, "proposal", false, "print the agent's proposal, without your edits")

	var to string
	restore := &cobra.Command{
		Use:   "restore ID",
		Short: "Write an entry's text to its file",
		Long: `Writes the text to the file it was proposed for, or to another file. The present
content of the file goes into the journal first. If symbolic links have changed
and the path now leads to another file, nothing is written: name the file with
--to.`,
		Args: oneEntry,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJournal(func(j *journal.Journal) error {
				e, err := j.Get(args[0])
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
				fmt.Fprintf(streams.Err, "pollux: wrote %s\n", termtext.Visible(path))
				if replaced != "" {
					fmt.Fprintf(streams.Err, "pollux: to undo this: pollux journal restore %s\n", replaced)
				}
				return nil
			})
		},
	}
	restore.Flags().StringVar(&to, "to", "", "write this `file` instead")
	cmd.AddCommand(show, restore)
	return cmd
}

func oneEntry(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New("name one entry by its ID: `pollux journal` lists them")
	}
	return nil
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
