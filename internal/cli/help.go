package cli

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/docs"
	"pollux/internal/lazy"
)

// newHelp returns the command that replaces cobra's own: it also shows the manual.
func newHelp(streams IO) *cobra.Command {
	var noPager, all bool
	cmd := &cobra.Command{
		Use:   "help [TOPIC | COMMAND]",
		Short: "Show a page of the manual, or the help of a command",
		Long: `Shows a page of the manual, or the help of a command. If both have the name, it
shows the page; COMMAND --help shows the help of the command.`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			all := topics()
			for _, sub := range cmd.Root().Commands() {
				if sub.IsAvailableCommand() && !slices.Contains(all, sub.Name()) {
					all = append(all, sub.Name())
				}
			}
			return all, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if all {
					groupForPrograms(cmd.Root())
				}
				cmd.Root().InitDefaultHelpFlag()
				return cmd.Root().Help()
			}
			for topic, file := range pages() { // a page may be named by its file, too
				if len(args) == 1 && (topic == args[0] || strings.EqualFold(file, args[0]+".md")) {
					return showTopic(cmd.Context(), streams, topic, noPager)
				}
			}
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || about == cmd.Root() {
				return usageError{unknownTopic(cmd.Root(), args)}
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
	cmd.Flags().BoolVar(&noPager, "no-pager", false, "do not send the output to $PAGER on a terminal")
	cmd.Flags().BoolVar(&all, "all", false, "without a topic: also list the commands that other programs start")
	show := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		listTopics(cmd)
		show(cmd, args)
	})
	return cmd
}

// unknownTopic returns the error for a topic that does not exist. It names those that it may
// mean, or all.
func unknownTopic(root *cobra.Command, args []string) error {
	var names []string
	root.SuggestionsMinimumDistance = maxTypos
	for _, s := range append(similar(args[0], topics()), root.SuggestionsFor(args[0])...) {
		names = append(names, "pollux help "+s)
	}
	name := strings.Join(args, " ")
	if len(names) > 0 {
		return unknown("topic", name, slices.Compact(names))
	}
	return fmt.Errorf("unknown topic %q: use one of %s, or the name of a command", name, strings.Join(topics(), ", "))
}

// showGroups makes the help of the root command leave out the commands that have no group,
// and say how to see them.
func showGroups(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		brief := cmd == root && !root.ContainsGroup(forPrograms)
		if brief {
			for _, sub := range root.Commands() {
				sub.Hidden = sub.Hidden || sub.GroupID == ""
			}
		}
		show(cmd, args)
		if brief {
			fmt.Fprintln(root.OutOrStdout(), "The commands that editors, shells, MCP clients and scripts start: pollux help --all")
		}
	})
}

// showUsage prints how to type a command, and its commands and flags.
func showUsage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "  %s COMMAND\n", cmd.CommandPath())
	}
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(out, "\n%s\n%s\n", title, strings.TrimRight(text, "\n"))
		}
	}
	if len(cmd.Aliases) > 0 {
		section("Other names:", "  "+strings.Join(cmd.Aliases, ", "))
	}
	section("Examples:", cmd.Example)
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		var rows strings.Builder
		for _, sub := range cmd.Commands() {
			if sub.GroupID == g.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
				fmt.Fprintf(&rows, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
		section(g.Title, rows.String())
	}
	if f := cmd.Flags().Lookup("help"); f != nil {
		f.Usage = "show this help"
	}
	section("Flags:", cmd.Flags().FlagUsages())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\nThe help of a command: %s COMMAND --help\n", cmd.CommandPath())
	}
	return nil
}

// forPrograms is the group of the commands that other programs start.
const forPrograms = "programs"

// groupForPrograms puts the commands without a group into a group.
func groupForPrograms(root *cobra.Command) {
	root.AddGroup(&cobra.Group{ID: forPrograms, Title: "For editors, shells, MCP clients and scripts:"})
	for _, sub := range root.Commands() {
		if sub.GroupID == "" {
			sub.GroupID = forPrograms
		}
	}
}

// listTopics adds the topics with their titles to the help text of the command help.
func listTopics(cmd *cobra.Command) {
	var list strings.Builder
	for _, topic := range topics() {
		title, _, _ := strings.Cut(strings.TrimPrefix(readTopic(topic), "# "), "\n")
		fmt.Fprintf(&list, "\n  %-12s %s", topic, strings.ReplaceAll(title, "`", ""))
	}
	cmd.Long += "\n\nTopics:\n" + list.String()
}

// pages returns the files of the manual, by topic.
func pages() map[string]string {
	all := make(map[string]string)
	files, _ := fs.Glob(docs.FS, "*.md")
	for _, f := range files {
		if !slices.Contains(docs.Project, f) {
			all[topicOf(f)] = f
		}
	}
	return all
}

// topics returns the names of the manual's pages.
func topics() []string { return slices.Sorted(maps.Keys(pages())) }

// topicOf returns the topic of a file of the manual.
func topicOf(file string) string {
	name := strings.ToLower(strings.TrimSuffix(path.Base(file), ".md"))
	return cmp.Or(docs.Topics[name], name)
}

// readTopic returns the text of a page.
func readTopic(topic string) string {
	text, _ := docs.FS.ReadFile(pages()[topic])
	return string(text)
}

// showTopic prints a page. On a terminal it has styles and goes through a pager.
func showTopic(ctx context.Context, streams IO, topic string, noPager bool) error {
	style := plainText
	switch {
	case coloured(streams.Out):
		style = colouredText
	case fullTerminal(streams.Out):
		style = boldText
	}
	width := min(max(cmp.Or(columns(streams.Out), 80), minColumns), maxColumns)
	text := formatMarkdown(forUsers(readTopic(topic)), width, style)
	return page(ctx, streams, noPager, text)
}

// The widths of a formatted page, in columns.
const minColumns, maxColumns = 40, 90

var (
	comment = lazy.Regexp(`(?s)<!--.*?-->\n?`)
	image   = lazy.Regexp(`!\[[^\]]*\]\([^)]*\)\n*`)
	link    = lazy.Regexp(`\[([^\]]*)\]\(([^)]*)\)`)
	inner   = lazy.Regexp(`\(([^()]*) \(([^()]*)\)\)`) // a link in parentheses
)

// forUsers returns a page without comments and images. It replaces links to other pages of
// the manual with the command that shows them, and removes links to files that users do not
// have.
func forUsers(text string) string {
	text = comment().ReplaceAllString(text, "")
	text = image().ReplaceAllString(text, "")
	text = link().ReplaceAllStringFunc(text, func(whole string) string {
		m := link().FindStringSubmatch(whole)
		label, target := m[1], m[2]
		file, _, _ := strings.Cut(target, "#")
		switch {
		case strings.Contains(target, "://"):
			return label + " (" + target + ")"
		case slices.Contains(topics(), topicOf(file)) && path.Base(file) == file:
			command := "`pollux help " + topicOf(file) + "`"
			if label == file {
				return command
			}
			return label + " (" + command + ")"
		}
		return label
	})
	return inner().ReplaceAllString(text, "($1: $2)")
}
