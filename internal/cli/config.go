package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/config"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
)

func newConfig(streams IO) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the settings in use, and where they come from",
		Long: `Prints the value of each setting and where it comes from: the line of the file
config.toml, an environment variable, or the default. A flag, such as pollux run
--review, wins over the environment, the environment over the file, and the file
over the default. The output is valid as a config.toml. With flags of pollux run,
it shows what that command would use.

pollux config edit opens the file in your editor. If there is none, it starts
with all settings and their defaults, as comments. If the file is invalid,
pollux config prints each problem with its line, and the exit code is 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := reportSettings(streams.Err)
			v.SetFlags(changedFlags(cmd.Flags(), config.Settings))
			var err error
			if asJSON {
				err = printJSON(streams.Out, shownConfig{
					Path: v.Path, Exists: disk.Exists(v.Path), Settings: v.Show(), Problems: append([]*config.Problem{}, v.Problems...),
				})
			} else {
				state := ""
				if !disk.Exists(v.Path) {
					state = " (does not exist)"
				}
				_, err = fmt.Fprint(streams.Out, forOutput(streams.Out, "# "+termtext.Visible(v.Path)+state+"\n"+v.String()))
			}
			if err == nil && len(v.Problems) > 0 {
				err = exitError{1}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	addFlags(cmd)
	path := func() (string, error) { return config.FilePath(os.Getenv) }
	cmd.AddCommand(newPath(streams, "the file config.toml", path), newConfigEdit(streams))
	return cmd
}

// newPath returns a command that prints the path of something.
func newPath(streams IO, what string, find func() (string, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "path",
		Short: "Print the path of " + what,
		RunE: func(*cobra.Command, []string) error {
			path, err := find()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(streams.Out, forOutput(streams.Out, path))
			return err
		},
	}
}

// shownConfig is the output of pollux config --json.
type shownConfig struct {
	Path     string            `json:"path"`
	Exists   bool              `json:"exists"`
	Settings []config.Shown    `json:"settings"`
	Problems []*config.Problem `json:"problems"`
}

func newConfigEdit(streams IO) *cobra.Command {
	return &cobra.Command{
		Use:   "edit",
		Short: "Edit config.toml in $VISUAL or $EDITOR, and check it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := config.FilePath(os.Getenv)
			if err != nil {
				return err
			}
			editor := shell.SplitLine(cmp.Or(strings.TrimSpace(os.Getenv("VISUAL")), strings.TrimSpace(os.Getenv("EDITOR")), shell.DefaultEditor))
			ctx, stop := leaveInterruptToAgent(cmd.Context())
			defer stop()
			edit, err := proc.Command(ctx, editor[0], append(editor[1:], path)...)
			if err != nil {
				return fmt.Errorf("cannot start the editor (%w): set EDITOR, or edit %s yourself", err, path)
			}
			if err := createConfig(path); err != nil {
				return err
			}
			edit.Stdin, edit.Stdout, edit.Stderr = streams.In, streams.Out, streams.Err
			shell.LetSave(edit)
			if err := edit.Run(); err != nil {
				return fmt.Errorf("the editor %s failed (%w): set EDITOR, or edit %s yourself", editor[0], err, path)
			}
			if v := reportSettings(streams.Err); len(v.Problems) > 0 {
				return exitError{1}
			}
			return nil
		},
	}
}

// createConfig creates the file of settings with all defaults as comments, unless it
// exists.
func createConfig(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot create %s: %w", path, disk.Cause(err))
	}
	_, err = f.WriteString(config.Template())
	return errors.Join(err, f.Close())
}
