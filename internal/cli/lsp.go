package cli

import (
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"pollux/internal/editor"
	"pollux/internal/sys/shell"
	"pollux/internal/view/lsp"
)

func newLSP(streams IO) *cobra.Command {
	var flags companionFlags
	cmd := &cobra.Command{
		Use:   "lsp",
		Short: "Run the companion process of an editor with an LSP client",
		Long: `Runs a companion as a language server on standard input and output, for editors
that Pollux has no plugin for. It infers the cursor and the selection from the
editor's requests to language servers. It announces changes with a message and as
code actions; you review them on the page or with pollux review.
` + "`pollux help editors`" + ` shows how to set up each editor.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			cfg, err := flags.config(streams)
			if err != nil {
				return err
			}
			explainServer(streams, "this is a language server, which an editor starts: "+
				"to set it up, see `pollux lsp --help`; Ctrl-C ends it")
			mine, theirs := net.Pipe()
			var companion errgroup.Group
			companion.Go(func() error { return serveEditor(ctx, theirs, cfg) })
			lsp.Serve(ctx, streams.interruptible(), lsp.Config{
				Version:     version(),
				OpenBrowser: shell.OpenBrowser,
				Dial:        func(h editor.Handler) *editor.Client { return editor.NewClient(mine, h) },
			})
			return companion.Wait()
		},
	}
	flags.add(cmd)
	return cmd
}
