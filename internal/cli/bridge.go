package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/bridge"
	"pollux/internal/sys"
)

func newBridge(streams IO) *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Serve Gemini CLI to an MCP client on standard input and output",
		Long: `An MCP server on standard input and output, for Claude Code, Codex, Cursor,
VS Code and every other MCP client: its tools ask Gemini CLI. The client starts
it; pollux install bridge writes that into a client's settings.

Gemini CLI may read and search there, and nothing else, whatever its settings
say. Settings of the bridge, as environment variables:

  GEMINI_CLI_PATH               the Gemini CLI (gemini)
  GEMINI_DEFAULT_MODEL          the model of calls that name none (the CLI's)
  GEMINI_FALLBACK_MODEL         asked when that is overloaded or over its
                                quota (gemini-2.5-flash; none for none)
  GEMINI_MAX_CONCURRENT         calls at once (3)
  GEMINI_MIN_INVOCATION_GAP_MS  time between two starts (5000)
  GEMINI_SPAWN_JITTER_MAX_MS    random time added to it (200)
  GEMINI_IDLE_TIMEOUT_MS        silence after which a run is ended (300000)
  GEMINI_PROMPTS_DIR            prompt templates of your own
  GEMINI_RUNNER                 warm keeps CLIs running, spawn starts one for
                                each call (warm)
  GEMINI_WARM_PROCESSES         CLIs that are kept, of all directories (3)
  GEMINI_WARM_IDLE_MS           after so long unused one is ended (600000)
  GEMINI_WARM_WAIT_MS           so long a call waits for one to start (5000)
  GEMINI_WARM_MEMORY_MB         with more than that one is replaced (1024)
  GEMINI_WARM_AHEAD             true starts one with the bridge (false)`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withBridge(cmd.Context(), streams, level, func(*bridge.Config) {}, func(ctx context.Context, b *bridge.Bridge) error {
				b.Publish() // if it fails, only `pollux status` misses the bridge
				// The server waits for its calls before it ends; so they have
				// to end, when the client has gone or we are told to.
				defer context.AfterFunc(ctx, func() { b.Close() })()
				served := make(chan error, 1)
				go func() {
					served <- bridge.NewServer(b).Run(ctx, bridge.Stdio(streams.In, streams.Out, func() { go b.Close() }))
				}()
				var err error
				select {
				case err = <-served:
				case <-ctx.Done():
					// Its last answers may wait for a client that does not read.
					select {
					case <-served:
					case <-time.After(5 * time.Second):
					}
				}
				if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) {
					return nil
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&level, "log", "warn", "what to log to standard error: debug, info, warn or error")
	return cmd
}

// once makes a bridge for a single call, after which nothing stays warm.
func once(cfg *bridge.Config) { cfg.Runner.Kind = agent.Spawned }

// withBridge runs f with a bridge, which the system's signals to end end.
func withBridge(ctx context.Context, streams IO, level string, change func(*bridge.Config), f func(context.Context, *bridge.Bridge) error) error {
	log, err := logger(streams.Err, level)
	if err != nil {
		return err
	}
	cfg, err := bridge.FromEnv(agents.Default(), os.Getenv)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Runner.Log, cfg.Version = log, log, version()
	change(&cfg)
	ctx, stop := signal.NotifyContext(ctx, sys.TerminationSignals...)
	defer stop()
	runner, err := agents.Open(cfg.Agent, cfg.Runner)
	if err != nil {
		return err
	}
	b, err := bridge.New(runner, cfg)
	if err != nil {
		return errors.Join(err, runner.Close())
	}
	return errors.Join(f(ctx, b), b.Close())
}
