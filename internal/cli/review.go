package cli

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/sys/shell"
	"pollux/internal/view/term"
	"pollux/internal/view/tmux"
)

func newReview(streams IO) *cobra.Command {
	var socket string
	var once bool
	cmd := &cobra.Command{
		Use:   "review",
		Short: "Review pending changes in this terminal",
		Long: `Shows the pending changes of a running companion: over ssh, in a tmux pane next to
the agent, and for editors that show no diffs. Accept or reject a change, undo
single hunks or a range of them, edit the text in $VISUAL or $EDITOR. Press ? for
the keys. Quitting accepts and rejects nothing.

Pollux takes the companion in $POLLUX_SOCKET, or else the one whose workspace
contains the working directory.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isTerminal(streams.In) || !isTerminal(streams.Out) {
				return errors.New("review needs a terminal: `pollux status` lists pending changes, " +
					"`pollux open` opens the review page")
			}
			ctx, stop := untilTerminated(cmd.Context())
			defer stop()
			path, err := editor.Find(ctx, self(), socket, "")
			if err != nil {
				return elsewhere(ctx, err, "cd %s && pollux review")
			}
			err = term.Run(ctx, term.Config{
				In: streams.In, Out: streams.Out, Env: os.Environ(), Version: version(), Once: once,
				Editor: cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), shell.DefaultEditor),
				Dial: func(h editor.Handler) (*editor.Client, error) {
					conn, err := editor.Connect(ctx, path)
					if err != nil {
						return nil, err
					}
					return editor.NewClient(conn, h), nil
				},
			})
			if errors.Is(err, term.ErrLeft) {
				return exitError{tmux.ExitLeft}
			}
			switch {
			case errors.Is(err, term.ErrEnded):
				say(streams.Err, "the companion has ended: `pollux journal` lists the changes that it showed")
				return nil
			case errors.Is(err, context.Canceled):
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`path` of the companion's socket")
	cmd.Flags().BoolVar(&once, "once", false, "exit when no changes are pending; quitting before that exits with code 3")
	return cmd
}
