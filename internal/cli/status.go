package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/bridge"
	"pollux/internal/editor"
	"pollux/internal/termtext"
)

func newStatus(streams IO) *cobra.Command {
	var asJSON, link, bridges bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show companions, agents, pending changes, bridges and pools",
		Long: `Shows what is running: each companion, with its workspace, its agents and their
pending changes; then the bridges, and the pools with their processes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := bridge.Bridges(cmd.Context())
			if err != nil {
				return err
			}
			if bridges {
				if asJSON {
					return printJSON(streams.Out, running)
				}
				if len(running) == 0 {
					fmt.Fprintln(streams.Out, "No bridge is running. An MCP client starts one: see `pollux install bridge`.")
				}
				return printBridges(cmd.Context(), streams, running, "")
			}
			entries, stopped, err := companions(cmd.Context(), streams.Err, link)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(streams.Out, entries)
			}
			if link {
				return printLinks(streams, entries)
			}
			if len(entries) == 0 && stopped == 0 {
				fmt.Fprintln(streams.Out, "No companion is running. Start one with `pollux run`.")
			}
			for i, e := range entries {
				if i > 0 {
					fmt.Fprintln(streams.Out)
				}
				fmt.Fprint(proseWriter{streams.Out}, e.Describe(""))
			}
			return printBridges(cmd.Context(), streams, running, "\n")
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&bridges, "bridges", false, "show only the bridges, and the pools with their processes")
	cmd.Flags().BoolVar(&link, "link", false, "print one line for each review page: a link that opens it once, a tab character, the workspace")
	return cmd
}

// A companionEntry is a running companion in the output of status.
type companionEntry struct {
	editor.Status
	Socket string `json:"socket"`
	Link   string `json:"link,omitempty"`
}

// companions returns the running companions, with links to their review pages if link is
// set. It reports those that do not answer to errs, and returns how many they are.
func companions(ctx context.Context, errs io.Writer, link bool) (entries []companionEntry, stopped int, err error) {
	all, err := editor.List(ctx, self())
	if err != nil {
		return nil, 0, err
	}
	entries = []companionEntry{} // which JSON shows as a list
	for _, c := range all {
		if c.Stopped {
			say(errs, "%v", editor.ErrorSilent(c.Socket))
			stopped++
			continue
		}
		e := companionEntry{Status: c.Status, Socket: c.Socket}
		if link {
			_, page, err := editor.ReviewPage(ctx, c.Socket, self())
			if err != nil {
				say(errs, "no link to the page of %s: %s", companionName(c.Status), err)
			}
			e.Link = page.URL
		}
		entries = append(entries, e)
	}
	return entries, stopped, nil
}

// printLinks prints a line for each review page, for scripts.
func printLinks(streams IO, entries []companionEntry) error {
	if len(entries) == 0 {
		return errors.New("no companion answers: start one with `pollux run`")
	}
	for _, e := range entries {
		if e.Link != "" {
			fmt.Fprintf(streams.Out, "%s\t%s\n", shownURL(streams.Out, e.Link),
				termtext.Visible(strings.Join(e.Roots, ", ")))
		}
	}
	return nil
}

// printBridges prints the bridges and the pools, each after a separator.
func printBridges(ctx context.Context, streams IO, bridges []bridge.Status, separator string) error {
	for _, b := range bridges {
		fmt.Fprintf(streams.Out, "%s%s", separator, b)
	}
	running, _, err := pools(ctx, streams)
	for _, p := range running {
		fmt.Fprintf(streams.Out, "%s%s", separator, p)
	}
	return err
}
