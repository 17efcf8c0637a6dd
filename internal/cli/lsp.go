package cli

import (
	"net"
	"os/signal"
	"sync"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/sys"
	"pollux/internal/view/lsp"
)

func newLSP(streams IO) *cobra.Command {
	var flags companionFlags
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Be the companion of an editor with a language client",
		Long: `A language server on standard input and output that is a companion for Gemini
CLI: for editors that Pollux has no plugin for. What it can know of the cursor
and the selection is what the editor asks language servers about; changes are
offered by a message and as code actions, and reviewed on the page or with
pollux review. docs/EDITORS.md has what each editor gives, and how it is told to
start this.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), sys.TerminationSignals...)
			defer stop()
			cfg, err := flags.config(streams)
			if err != nil {
				return err
			}
			mine, theirs := net.Pipe()
			var companion sync.WaitGroup
			companion.Go(func() { err = serveEditor(ctx, theirs, cfg) })
			lsp.Serve(ctx, stdio{streams}, lsp.Config{
				Version:     version(),
				OpenBrowser: sys.OpenBrowser,
				Dial:        func(h editor.Handler) *editor.Client { return editor.NewClient(mine, h) },
			})
			companion.Wait()
			return err
		},
	}
	flags.add(cmd)
	return cmd
}
