package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/ide"
)

// loadCompletion says how to load the completion of a shell.
var loadCompletion = map[string]string{
	"bash": `It needs the package bash-completion. For this shell:

    source <(pollux completion bash)

For every new shell, once:

    mkdir -p ~/.local/share/bash-completion/completions
    pollux completion bash > ~/.local/share/bash-completion/completions/pollux`,
	"zsh": `For this shell:

    source <(pollux completion zsh)

For every new shell, once:

    pollux completion zsh > "${fpath[1]}/_pollux"

If zsh completes nothing yet, turn its completion on, once:

    echo "autoload -U compinit; compinit" >> ~/.zshrc`,
	"fish": `For this shell:

    pollux completion fish | source

For every new shell, once:

    pollux completion fish > ~/.config/fish/completions/pollux.fish`,
	"powershell": `For this shell, and in the file $PROFILE for every new one:

    pollux completion powershell | Out-String | Invoke-Expression`,
}

// describeCompletion replaces the texts of the completion command that cobra adds.
func describeCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, _ := root.Find([]string{"completion"})
	cmd.Args = nil // see [checkArgs]
	cmd.Short = "Print the completion script for a shell"
	cmd.Long = `Prints a script with which a shell completes commands, flags and their values.
pollux completion bash --help says how to load it in bash, and so on. The .deb and
.rpm packages install it for bash, zsh and fish.`
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range cmd.Commands() {
		shell.Args = nil
		shell.Short = "Print the completion script for " + shell.Name()
		shell.Long = "Prints the completion script for " + shell.Name() + ".\n\n" + loadCompletion[shell.Name()]
		shell.Flags().Lookup("no-descriptions").Usage = "complete without descriptions"
	}
}

// flagValues are the values that the shell completes, by the names of flags.
func flagValues() map[string][]string {
	var agents []string
	for _, l := range ide.Launches() {
		agents = append(agents, l.Name)
	}
	return map[string][]string{
		"agent":  agents,
		"event":  notifyEvents,
		"log":    {"debug", "info", "warn", "error"},
		"review": {reviewBrowser, reviewSplit, reviewPopup, reviewNone},
		"unit":   {"char", "byte", "utf16", "grapheme"},
	}
}

// eachCommand calls f for a command and all commands below it.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, f)
	}
}

// completeFlags adds the completion of flags to a command, unless it has its own.
func completeFlags(cmd *cobra.Command) {
	values := flagValues()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := cmd.GetFlagCompletionFunc(f.Name); ok {
			return
		}
		switch {
		case f.Name == "root":
			cmd.MarkFlagDirname(f.Name)
		case values[f.Name] != nil:
			cmd.RegisterFlagCompletionFunc(f.Name,
				cobra.FixedCompletions(values[f.Name], cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// plainUsages removes the backticks from the descriptions of flags, where they mark
// the name of the value. The shell shows the descriptions as they are.
func plainUsages(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
}
