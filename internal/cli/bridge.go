package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/shared"
	"pollux/internal/bridge"
)

func newBridge(streams IO) *cobra.Command {
	var level string
	var there poolFlags
	cmd := &cobra.Command{
		Use:   "bridge",
		Short: "Serve Gemini CLI to an MCP client, on standard input and output",
		Long: `An MCP server on standard input and output, for Claude Code, Codex, Cursor,
VS Code and every other MCP client. Its tools ask Gemini CLI. The client starts
it; pollux install bridge writes that into a client's settings.

Gemini CLI can read and search, and nothing else, whatever its settings say.
Environment variables, with defaults in parentheses:

  GEMINI_CLI_PATH               path of Gemini CLI (gemini)
  GEMINI_DEFAULT_MODEL          model for calls that name none (the CLI's)
  GEMINI_FALLBACK_MODEL         model to ask if that one is overloaded or over
                                its quota (gemini-2.5-flash; none turns it off)
  GEMINI_MAX_CONCURRENT         maximum number of concurrent calls (3)
  GEMINI_MIN_INVOCATION_GAP_MS  minimum time between two starts (5000)
  GEMINI_SPAWN_JITTER_MAX_MS    maximum random time added to it (200)
  GEMINI_IDLE_TIMEOUT_MS        end a run that is silent for this time (300000)
  GEMINI_PROMPTS_DIR            directory with your prompt templates
  GEMINI_RUNNER                 warm keeps processes running, spawn starts one
                                for each call (warm)
  GEMINI_WARM_PROCESSES         maximum number of warm processes (3)
  GEMINI_WARM_IDLE_MS           end a process that is idle for this time (600000)
  GEMINI_WARM_WAIT_MS           how long a call waits for a process (5000)
  GEMINI_WARM_MEMORY_MB         replace a process that uses more memory (1024)
  GEMINI_WARM_AHEAD             true starts a process with the bridge (false)
  POLLUX_POOL                   off keeps the processes in this bridge instead of
                                sharing those of pollux pool (on)
  POLLUX_POOL_IDLE_MS           end the pool after this time without a call
                                (600000)

With --ssh, --socket or --via, Gemini CLI runs where another pool runs: signed in
there, and with the files there. If a directory has another name there, --map
gives both names. docs/POOL.md explains it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unchanged := func(*bridge.Config) {}
			return withBridge(cmd.Context(), streams, level, &there, unchanged, func(ctx context.Context, b *bridge.Bridge) error {
				explainServer(streams, "this is an MCP server, which an MCP client starts: "+
					"to set it up, `pollux install bridge CLIENT`; Ctrl-C ends it")
				b.Publish() // on failure, only `pollux status` is affected
				return serveBridge(ctx, b, streams)
			})
		},
	}
	cmd.Flags().StringVar(&level, "log", "warn", "log `level` on standard error: debug, info, warn or error")
	there.add(cmd)
	return cmd
}

// serveBridge serves a bridge to the client on the standard streams, until the
// client disconnects or ctx ends.
func serveBridge(ctx context.Context, b *bridge.Bridge, streams IO) error {
	// The server waits for its calls before it ends. Closing the bridge cancels
	// them, after a signal or when the client has disconnected.
	defer context.AfterFunc(ctx, func() { b.Close() })()
	// After a signal, the last answers may wait for a client that does not read.
	// The end of this context fails their writes, so that the calls end.
	last, cancel := delayed(ctx, lastAnswersTimeout)
	defer cancel()
	defer freeLater()()
	err := await(last, func() error {
		return bridge.NewServer(b).Run(ctx, bridge.Stdio(last, streams.In, streams.Out, func() { go b.Close() }))
	})
	if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// freeDelay is the time after which a bridge or a pool has started.
const freeDelay = time.Second

// freeLater returns the memory that only the start needs to the system, once the start
// is over and nobody waits for it. A client starts a bridge per session, and most of them
// are idle. The result cancels it.
func freeLater() (stop func() bool) { return time.AfterFunc(freeDelay, debug.FreeOSMemory).Stop }

// lastAnswersTimeout limits how long the bridge may write its last answers after
// a signal.
const lastAnswersTimeout = 5 * time.Second

// once configures a bridge for a single call: no process stays warm.
func once(cfg *bridge.Config) { cfg.Runner.Kind, cfg.NoPool = agent.Spawned, true }

// openRunner returns the runner of a bridge: that of the pool which the flags select, of
// the pool on this machine, or one of its own.
func openRunner(cfg bridge.Config, there *poolFlags) (agent.Runner, error) {
	if there.away() {
		return there.open(cfg)
	}
	local := func() (agent.Runner, error) { return agents.Open(cfg.Agent, cfg.Runner) }
	if cfg.NoPool {
		return local()
	}
	connect, err := localPool(cfg)
	if err != nil {
		cfg.Log.Warn("the pool cannot be used: this bridge runs its own processes", "error", err)
		return local()
	}
	h := hello(cfg)
	return shared.NewClient(shared.Config{Connect: connect, Hello: &h, Local: local, Check: cfg.Agent.Check, Log: cfg.Log}), nil
}

// withBridge calls f with a bridge. A signal ends f's context.
func withBridge(ctx context.Context, streams IO, level string, there *poolFlags, change func(*bridge.Config),
	f func(context.Context, *bridge.Bridge) error) error {
	log, err := logger(streams.Err, level)
	if err != nil {
		return err
	}
	cfg, err := bridge.FromEnv(agents.Default(), os.Getenv)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Runner.Log, cfg.Version = log, log, version()
	defer recordUsage(&cfg)()
	change(&cfg)
	ctx, stop := untilSignal(ctx)
	defer stop()
	runner, err := openRunner(cfg, there)
	if err != nil {
		return err
	}
	b, err := bridge.New(runner, cfg)
	if err != nil {
		return errors.Join(err, runner.Close())
	}
	return errors.Join(f(ctx, b), b.Close())
}
