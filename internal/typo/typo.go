// Package typo finds the names that a mistyped one may mean.
package typo

import "github.com/spf13/cobra"

// Similar returns the names that differ from a wrong one in at most the given number of
// letters, or begin with it, in their order.
func Similar(wrong string, names []string, letters int) []string {
	cmd := cobra.Command{SuggestionsMinimumDistance: letters}
	for _, name := range names {
		cmd.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return cmd.SuggestionsFor(wrong)
}
