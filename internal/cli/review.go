package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/view/term"
)

// exitLeft is the exit code of a review --once that the user left while
// something waited.
const exitLeft = 3

func newReview(streams IO) *cobra.Command {
	var socket string
	var once bool
	cmd := &cobra.Command{
		Use:   "review",
		Short: "Review what CLIs propose, in this terminal",
		Long: `Shows the changes that wait at a running companion: for ssh, for a tmux pane
beside the CLI, and for editors that show no diffs. Accept, reject, undo single
hunks, edit the text in $VISUAL or $EDITOR; ? lists the keys. Leaving decides
nothing.

The companion is the one in $POLLUX_SOCKET, else the one whose workspace holds
the working directory.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isTerminal(streams.In) || !isTerminal(streams.Out) {
				return errors.New("review needs a terminal: `pollux status` lists what waits, `pollux status --link` opens the page")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			path, err := editor.Find(ctx, self(), socket, "")
			if err != nil {
				return err
			}
			err = term.Run(ctx, term.Config{
				In: streams.In, Out: streams.Out, Env: os.Environ(), Version: version(), Once: once,
				Editor: cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi"),
				Dial: func(h editor.Handler) (*editor.Client, error) {
					conn, err := editor.Connect(ctx, path)
					if err != nil {
						return nil, err
					}
					return editor.NewClient(conn, h), nil
				},
			})
			if errors.Is(err, term.ErrLeft) {
				return exitError{exitLeft}
			}
			if errors.Is(err, term.ErrEnded) || errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the `path` of the companion's socket")
	cmd.Flags().BoolVar(&once, "once", false, "end when nothing waits any more; leaving before ends with exit code 3")
	return cmd
}
