package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/bridge"
	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

func newStatus(streams IO) *cobra.Command {
	var asJSON, link, bridges bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show running companions, connected agents, pending changes, bridges and pools",
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
			all, err := editor.List(cmd.Context(), self())
			if err != nil {
				return err
			}
			type entry struct {
				editor.Status
				Socket string `json:"socket"`
				Link   string `json:"link,omitempty"`
			}
			entries := []entry{}
			for _, c := range all {
				if c.Stopped {
					fmt.Fprintf(streams.Err,
						"pollux: the companion at %s does not answer: if it is stopped, type `fg` in its terminal\n", c.Socket)
					continue
				}
				e := entry{Status: c.Status, Socket: c.Socket}
				if link {
					var l editor.Link
					err := editor.WithClient(cmd.Context(), c.Socket, self(), func(ctx context.Context, client *editor.Client) error {
						return client.Call(ctx, editor.MethodReviewLink, nil, &l)
					})
					if err == nil {
						e.Link = l.URL
					}
				}
				entries = append(entries, e)
			}
			if asJSON {
				return printJSON(streams.Out, entries)
			}
			if len(all) == 0 {
				fmt.Fprintln(streams.Out, "No companion is running. Start one with `pollux run`.")
			}
			for i, e := range entries {
				if i > 0 {
					fmt.Fprintln(streams.Out)
				}
				fmt.Fprintf(streams.Out, "%s  %s\n", termtext.Visible(e.Editor.DisplayName),
					termtext.Visible(strings.Join(e.Roots, ", ")))
				fmt.Fprintf(streams.Out, "  process %d, port %d, up %s, %s open\n", e.PID, e.Port, since(e.Started),
					termtext.Count(e.Files, "file"))
				if len(e.Clients) == 0 {
					fmt.Fprintln(streams.Out, "  no agent is connected; in Gemini CLI, type /ide enable and restart it; "+
						"in Claude Code and Codex CLI, type /ide")
				}
				for _, note := range e.Notes {
					fmt.Fprintf(streams.Out, "  %s\n", termtext.Visible(note))
				}
				for _, c := range e.Clients {
					fmt.Fprintf(streams.Out, "  agent %s\n", termtext.Visible(describe(c)))
				}
				for _, d := range e.Diffs {
					state := "pending for"
					switch {
					case d.Notice != "":
						state = "cannot be displayed (" + termtext.Visible(strings.TrimSpace(d.Notice)) +
							"): answer in the agent's terminal; pending for"
					case d.State == editor.StateOrphaned:
						state = "its agent has ended; pending for"
					case d.State == editor.StateAccepted:
						state = "accepted; waiting to be written for"
					}
					fmt.Fprintf(streams.Out, "  diff  %s  %s %s\n", termtext.Visible(d.Path), state, since(d.Opened))
				}
				if e.Link != "" {
					fmt.Fprintf(streams.Out, "  review page (the link works once): %s\n", e.Link)
				}
			}
			return printBridges(cmd.Context(), streams, running, "\n")
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&bridges, "bridges", false, "show only the bridges, and the pools with their processes")
	cmd.Flags().BoolVar(&link, "link", false, "print a one-time link to each review page")
	return cmd
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

// describe returns an agent with its version, folder and process, as far as they are
// known, and what it cannot do.
func describe(a editor.Agent) string {
	text := strings.TrimSpace(a.Name + " " + a.Version)
	if a.Dir != "" {
		text += " in " + paths.Short(a.Dir)
	}
	if a.PID > 0 {
		text += fmt.Sprintf(", process %d", a.PID)
	}
	text += ", connected for " + since(a.Since)
	if a.Limits != "" {
		text += "; " + a.Limits
	}
	return text
}

func since(ms int64) string {
	return time.Since(time.UnixMilli(ms)).Truncate(time.Second).String()
}
