package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
		Short: "Show companions, agents, pending changes, bridges and pools",
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
				fmt.Fprintf(streams.Out, "%s  %s\n", termtext.Visible(e.Editor.DisplayName),
					termtext.Visible(strings.Join(e.Roots, ", ")))
				fmt.Fprintf(streams.Out, "  process %d, up %s, %s open\n", e.PID, since(e.Started), termtext.Count(e.Files, "file"))
				if len(e.Clients) == 0 {
					fmt.Fprintln(streams.Out, prose(streams.Out, "  no agent is connected; in Gemini CLI, type /ide enable "+
						"and restart it; in Claude Code and Codex CLI, type /ide"))
				}
				for _, note := range e.Notes {
					fmt.Fprintf(streams.Out, "  %s\n", termtext.Visible(note))
				}
				for _, c := range e.Clients {
					fmt.Fprintf(streams.Out, "  agent %s\n", termtext.Visible(describe(c)))
					if c.Silent != "" {
						fmt.Fprintf(streams.Out, "    %s\n", termtext.Visible(c.Silent))
					}
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
					fmt.Fprintf(streams.Out, "  diff  %s  of %s, %s %s\n", termtext.Visible(d.Path),
						termtext.Visible(cmp.Or(d.Agent, d.Client, "the agent")), state, since(d.Opened))
				}
				printOutside(streams.Out, e.Outside)
			}
			return printBridges(cmd.Context(), streams, running, "\n")
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&bridges, "bridges", false, "show only the bridges, and the pools with their processes")
	cmd.Flags().BoolVar(&link, "link", false, "print one line for each review page: a link that opens it once, a tab character, the workspace")
	return cmd
}

// maxShownOutside limits the lines about changes outside Pollux.
const maxShownOutside = 10

// printOutside prints the changes outside Pollux.
func printOutside(out io.Writer, list editor.Outside) {
	if len(list.Files) == 0 {
		return
	}
	fmt.Fprintf(out, "  %s\n", list.Note("`pollux open`"))
	for i, f := range list.Files {
		if i == maxShownOutside {
			fmt.Fprintf(out, "    and %d more\n", len(list.Files)-i)
			return
		}
		fmt.Fprintf(out, "    %s  %s, noticed %s ago\n", termtext.Visible(f.Path), f.Change, since(f.Since))
	}
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

// describe returns an agent with its version, process, terminal and folder, as far as
// they are known, and what it cannot do.
func describe(a editor.Agent) string {
	text := a.Describe()
	if a.Dir != "" {
		text += " in " + paths.Short(a.Dir)
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
