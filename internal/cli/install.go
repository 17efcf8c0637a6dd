package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/install"
)

func newInstall(streams IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Write Pollux into another program's settings",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInstallBridge(streams))
	for _, e := range install.Editors {
		cmd.AddCommand(newInstallEditor(streams, e))
	}
	return cmd
}

func newInstallBridge(streams IO) *cobra.Command {
	var remove, yes bool
	var names []string
	for _, c := range install.Clients {
		names = append(names, c.Name)
	}
	cmd := &cobra.Command{
		Use:       "bridge CLIENT",
		Short:     "Make an MCP client start pollux bridge",
		ValidArgs: names,
		Long: `Writes pollux bridge into the settings of an MCP client, which then has Gemini
CLI as tools. The change is shown first and made when you agree; the rest of
the file stays as it is. The clients: ` + strings.Join(names, ", ") + `.

--remove takes it out again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(names, args[0]) {
				return fmt.Errorf("name one client: %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := install.Clients[slices.Index(names, args[0])]
			path, err := c.File()
			if err != nil {
				return err
			}
			plan, err := c.Plan(remove)
			if err != nil {
				return err
			}
			if plan.Empty() {
				state := "is in"
				if remove {
					state = "is not in"
				}
				fmt.Fprintf(streams.Err, "pollux: nothing to do: Pollux %s %s\n", state, path)
				return nil
			}
			if done, err := apply(streams, plan, "Write "+path+"?", yes); err != nil || !done {
				return err
			}
			fmt.Fprintf(streams.Err, "pollux: wrote %s; start %s anew\n", path, c.Title)
			return nil
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "take Pollux out of the settings")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func newInstallEditor(streams IO, e install.Editor) *cobra.Command {
	var remove, yes bool
	cmd := &cobra.Command{
		Use:   e.Name,
		Short: "Make Pollux a part of " + e.Title,
		Long: fmt.Sprintf(`Puts Pollux where %s looks for it. What would be written is shown first, and
written when you agree; run it again after an update of Pollux. Files of yours
stay as they are.

--remove takes it out again.`, e.Title),
		RunE: func(*cobra.Command, []string) error {
			plan, err := e.Plan(remove)
			if err != nil {
				return err
			}
			if plan.Empty() {
				state := "in"
				if remove {
					state = "not in"
				}
				fmt.Fprintf(streams.Err, "pollux: nothing to do: Pollux is %s %s\n", state, e.Title)
				return nil
			}
			question := "Write this?"
			if remove {
				question = "Remove this?"
			}
			if done, err := apply(streams, plan, question, yes); err != nil || !done {
				return err
			}
			if remove {
				fmt.Fprintf(streams.Err, "pollux: it is out of %s\n", e.Title)
			} else {
				fmt.Fprintf(streams.Err, "pollux: done; %s\n", e.Next)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "take Pollux out again")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// apply shows a plan and carries it out once the user has agreed. It reports
// whether it did.
func apply(streams IO, plan *install.Plan, question string, yes bool) (bool, error) {
	fmt.Fprint(streams.Out, plan.Text)
	if !yes {
		if !isTerminal(streams.In) {
			return false, errors.New("nothing is written: call it with --yes to write it without being asked")
		}
		fmt.Fprintf(streams.Err, "%s [Y/n] ", question)
		// The end of the input is no agreement.
		if agreed, _ := agreed(streams.In); !agreed {
			fmt.Fprintln(streams.Err, "pollux: nothing is written")
			return false, nil
		}
	}
	return true, plan.Apply()
}
