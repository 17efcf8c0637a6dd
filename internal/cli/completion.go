package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/ide"
)

// flagValues are the values that the shell completes, by the names of flags.
func flagValues() map[string][]string {
	var agents []string
	for _, l := range ide.Launches() {
		agents = append(agents, l.Name)
	}
	return map[string][]string{
		"agent":  agents,
		"event":  {"focus", "close", "quit"},
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
