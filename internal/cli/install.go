package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/agent/gemini/settings"
	"pollux/internal/install"
)

func newInstall(streams IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Pollux in an editor or an MCP client",
		Long: `Installs Pollux in an editor, or the bridge in an MCP client. Pollux shows the
change first, and writes it if you agree.

    pollux install nvim                  connect Neovim to agents
    pollux install bridge claude-code    let Claude Code ask other agents
    pollux install nvim --remove         uninstall it`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var remove, yes bool
	cmd.PersistentFlags().BoolVar(&remove, "remove", false, "uninstall Pollux")
	cmd.PersistentFlags().BoolVarP(&yes, "yes", "y", false, "do not ask: answer yes to each question")
	cmd.AddCommand(newInstallBridge(streams, &remove, &yes))
	for _, e := range install.Editors {
		cmd.AddCommand(newInstallEditor(streams, e, &remove, &yes))
	}
	return cmd
}

func newInstallBridge(streams IO, remove, yes *bool) *cobra.Command {
	var names []string
	for _, c := range install.Clients {
		names = append(names, c.Name)
	}
	return &cobra.Command{
		Use:       "bridge CLIENT",
		Short:     "Add the bridge to an MCP client",
		ValidArgs: names,
		Long: `Adds pollux bridge to the settings of an MCP client, which can then ask other
agents. Pollux shows the change first, and writes it if you agree. The rest of the
file stays as it is. The clients are
` + strings.Join(names, ", ") + `.

Codex CLI and Gemini CLI keep keys and other variables of your shell from MCP
servers. The entry names those that agents need and that are set here, without
their values: run this again after you have set a new one.

--remove removes it again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(names, args[0]) {
				return nil
			}
			if len(args) == 1 {
				if s := similar(args[0], names); len(s) > 0 {
					return unknown("client", args[0], s)
				}
			}
			return fmt.Errorf("name one client: %s", strings.Join(names, ", "))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := install.Clients[slices.Index(names, args[0])]
			path, err := c.File()
			if err != nil {
				return err
			}
			plan, err := c.Plan(*remove, bridgeVariables()...)
			switch {
			case err != nil:
				return err
			case plan.Empty() && *remove:
				say(streams.Err, "nothing to do: Pollux is not in %s", path)
				return nil
			case plan.Empty():
				say(streams.Err, "nothing to do: Pollux is in %s", path)
				return nil
			}
			if done, err := apply(cmd.Context(), streams, plan, "Write "+path+"?", *yes); err != nil || !done {
				return err
			}
			if *remove {
				say(streams.Err, "removed from %s; restart %s", path, c.Title)
				return nil
			}
			say(streams.Err, "wrote %s", path)
			say(streams.Err, "next: restart %s and tell it: ask another agent whether this is right; `pollux doctor` checks what the bridge needs", c.Title)
			return nil
		},
	}
}

func newInstallEditor(streams IO, e install.Editor, remove, yes *bool) *cobra.Command {
	short := "Install the " + e.Title + " plugin"
	if !e.HasPlugin() {
		short = "Add Pollux to the settings of " + e.Title
	}
	return &cobra.Command{
		Use:     e.Name,
		Aliases: e.Aliases,
		Short:   short,
		Long: fmt.Sprintf(`Installs Pollux where %s looks for plugins and settings. Pollux shows the change
first, and writes it if you agree. It leaves your own files alone. Run this again
after an update of Pollux.

If you use Gemini CLI and its IDE mode is not on, this offers to turn it on:
otherwise a gemini in the editor's terminal does not connect.

--remove uninstalls it.`, e.Title),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := e.Plan(*remove)
			switch {
			case err != nil:
				return err
			case plan.Empty() && *remove:
				say(streams.Err, "nothing to do: Pollux is not installed in %s", e.Title)
				return nil
			case plan.Empty():
				say(streams.Err, "nothing to do: Pollux is installed in %s", e.Title)
				return prepareGemini(cmd.Context(), streams, *yes)
			}
			question := "Write these changes?"
			if *remove {
				question = "Remove Pollux from " + e.Title + "?"
			}
			if done, err := apply(cmd.Context(), streams, plan, question, *yes); err != nil || !done {
				return err
			}
			if *remove {
				say(streams.Err, "removed from %s; restart it to unload the plugin", e.Title)
				return leaveGemini(streams)
			}
			say(streams.Err, "installed in %s", e.Title)
			say(streams.Err, "next: %s", e.Next)
			if e.Decide != "" {
				(firstInstall + first("-"+e.Name)).explain(streams, e.Decide)
			}
			return prepareGemini(cmd.Context(), streams, *yes)
		},
	}
}

// prepareGemini offers to turn on Gemini CLI's IDE mode if the user has Gemini CLI.
// Without a terminal and without yes, it leaves the settings as they are.
func prepareGemini(ctx context.Context, streams IO, yes bool) error {
	home, err := settings.Home(nil)
	if err != nil {
		return err
	}
	_, missing := exec.LookPath("gemini")
	if info, err := os.Stat(home); missing != nil && (err != nil || !info.IsDir()) {
		return nil
	}
	err = offerIDEMode(ctx, streams, yes)
	if errors.Is(err, io.EOF) { // counts as no
		fmt.Fprintln(streams.Err)
		say(streams.Err, "IDE mode stays off")
		return nil
	}
	return err
}

// leaveGemini removes Gemini CLI's settings if Pollux made them and is in no editor any more.
func leaveGemini(streams IO) error {
	for _, e := range install.Editors {
		if plan, err := e.Plan(true); err != nil || !plan.Empty() {
			return nil
		}
	}
	path, err := settings.UserFile()
	if err != nil {
		return err
	}
	removed, err := settings.RemoveIDE(path)
	if removed {
		say(streams.Err, "removed %s, which only turned on IDE mode", path)
	}
	return err
}

// apply shows a plan and applies it if the user agrees. It reports whether the
// plan was applied.
func apply(ctx context.Context, streams IO, plan *install.Plan, question string, yes bool) (bool, error) {
	fmt.Fprint(streams.Out, plan.Text)
	if !yes {
		if !isTerminal(streams.In) {
			return false, errors.New("nothing was changed: use --yes to make the change without being asked")
		}
		// The end of the input means no.
		if yes, _ := confirm(ctx, streams, question); !yes {
			say(streams.Err, "nothing was changed")
			return false, nil
		}
	}
	return true, plan.Apply()
}
