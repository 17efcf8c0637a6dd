package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/queue"
	"pollux/internal/agent/shared"
	"pollux/internal/bridge"
	"pollux/internal/sys/disk"
	"pollux/internal/termtext"
)

func newPool(streams IO) *cobra.Command {
	var logs logFlags
	var background, reports bool
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Share warm processes between all bridges; they start it",
		Long: `The pool owns the warm processes of all your MCP clients, so that five sessions
need one process and not five, and share the limits of one account. The first
bridge that needs a process starts the pool in the background. It ends after 10
minutes without a call (POLLUX_POOL_IDLE_MS) or with pollux pool stop. There is
nothing to configure.

Without a subcommand, the pool runs in this terminal. It takes the settings of
warm processes from its environment and from config.toml (see pollux bridge
--help), so a pool in the background has the settings of the bridge that started
it. A process serves only clients with the same environment: no client uses the key
of another.

POLLUX_POOL=off, where an MCP client starts a bridge, lets that bridge keep its own
processes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if background {
				err = startPool(cmd.Context(), streams)
			} else {
				err = servePool(cmd.Context(), streams, &logs, reports)
			}
			if err != nil && (background || reports) { // the bridge that waits prints it
				fmt.Fprintln(streams.Out, err)
			}
			return err
		},
	}
	logs.add(cmd)
	cmd.Flags().BoolVar(&background, "background", false, "start the pool in the background")
	cmd.Flags().BoolVar(&reports, "report", false, "report on standard output when bridges can connect")
	cmd.Flags().MarkHidden("background")
	cmd.Flags().MarkHidden("report")
	cmd.AddCommand(newPoolStatus(streams), newPoolStop(streams), newPoolConnect(streams))
	return cmd
}

// startPool starts a pool that is not a child of this process's parent: an MCP client that
// ends a bridge with all its children must not end the pool.
func startPool(ctx context.Context, streams IO) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := shared.Start(ctx, []string{self, "pool", "--report"}); err != nil {
		return err
	}
	fmt.Fprintln(streams.Out, shared.ReadyLine)
	return nil
}

// servePool runs a pool until it is idle or stopped. It reports on standard output
// when bridges can connect, or for people on standard error.
func servePool(ctx context.Context, streams IO, logs *logFlags, reports bool) error {
	log, err := logs.open(streams.Err)
	if err != nil {
		return err
	}
	cfg, err := bridgeConfig()
	if err != nil {
		return err
	}
	cfg.Runner.Log = log
	path, err := shared.SocketPath(build())
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	l, err := shared.Listen(ctx, path)
	switch {
	case errors.Is(err, shared.ErrRunning) && reports:
		fmt.Fprintln(streams.Out, shared.ReadyLine)
		return nil
	case errors.Is(err, shared.ErrRunning):
		return fmt.Errorf("%w: see `pollux pool status`", err)
	case err != nil:
		return err
	}
	defer l.Close()
	if reports {
		fmt.Fprintln(streams.Out, shared.ReadyLine)
	} else {
		say(streams.Err, "the pool listens on %s", path)
	}
	s := &shared.Server{
		Definition: definition,
		Open: func(name string, own *agent.Definition) (*queue.Runner, agent.Source, error) {
			if own != nil {
				row := agents.Custom(*own)[0]
				r, err := agents.Open(row, cfg.Runner)
				return r, source(row), err
			}
			asked, err := cfg.For(name)
			if err != nil || asked.Agent.Custom { // it is unknown, or not any more
				return nil, agent.Source{}, nil
			}
			r, err := agents.Open(asked.Agent, cfg.Runner)
			return r, asked.Source, err
		},
		Version: version(), IdleTimeout: cfg.PoolIdleTimeout,
		Wall: cfg.Runner.Wall, Settings: cfg.PoolSettings(), Log: log,
	}
	return s.Serve(ctx, l)
}

// build identifies this build of Pollux. Bridges use a pool of the same build.
func build() string {
	if Version != "devel" {
		return Version
	}
	id := version()
	if path, err := os.Executable(); err == nil {
		id += " " + disk.StateOf(path)
	}
	return id
}

// hello introduces a bridge to a pool.
func hello(cfg bridge.Config) shared.Hello {
	from := cfg.Source
	from.Env = cfg.Agent.Environment(from.Env)
	dir, _ := os.Getwd()
	return shared.Hello{Protocol: shared.Protocol, Agent: cfg.Agent.Name, Source: &from, PID: os.Getpid(), Dir: dir}
}

// localPool returns a function that connects to the pool on this machine, and starts it
// if necessary.
func localPool() (func(context.Context) (io.ReadWriteCloser, error), error) {
	path, err := shared.SocketPath(build())
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return shared.Starter(path, []string{self, "pool", "--background"}), nil
}

func newPoolStatus(streams IO) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show running pools: processes, memory, sessions and the queue",
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, others, err := pools(cmd.Context(), streams)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(streams.Out, running)
			}
			if len(running)+others == 0 {
				fmt.Fprintln(streams.Out, "No pool is running. The first call of a bridge starts one.")
			}
			for i, p := range running {
				if i > 0 {
					fmt.Fprintln(streams.Out)
				}
				fmt.Fprint(streams.Out, p)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// pools returns the states of all running pools of this user. It warns about those that
// cannot be asked, and counts them.
func pools(ctx context.Context, streams IO) (running []shared.Status, others int, err error) {
	running, unreachable, err := shared.List(ctx)
	for _, u := range unreachable {
		say(streams.Err, "%s", termtext.Visible(u.Error()))
	}
	return running, len(unreachable), err
}

func newPoolStop(streams IO) *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the pool and its processes once the running calls have ended",
		Long: `Ends all running pools and their processes. Running calls get their answers
first. With --now they end immediately, and their bridges repeat them with a new
pool.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, unreachable, err := shared.List(cmd.Context())
			if err != nil {
				return err
			}
			if len(running)+len(unreachable) == 0 {
				fmt.Fprintln(streams.Out, "No pool is running.")
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			for _, p := range running {
				if n := p.Requests(); n > 0 && !now {
					say(streams.Err, "waiting for %s; --now ends them", termtext.Count(n, "call"))
				}
				if err := shared.Stop(ctx, p, now); err != nil {
					return err
				}
				fmt.Fprintf(streams.Out, "The pool has ended (process %d).\n", p.PID)
			}
			errs := make([]error, len(unreachable))
			for i, u := range unreachable {
				errs[i] = u
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "do not wait for running calls")
	return cmd
}

func newPoolConnect(streams IO) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Connect standard input and output to the pool, for pollux bridge --ssh",
		Long: `Connects a bridge on another machine to the pool on this one, and starts the pool
if none runs. pollux bridge --ssh runs this command with ssh. The agent runs with
the environment of this command.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := bridgeConfig()
			if err != nil {
				return err
			}
			if cfg, err = cfg.For(name); err != nil {
				return err
			}
			connect, err := localPool()
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			conn, err := connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			h := hello(cfg)
			h.PID, h.Dir = 0, "" // the bridge is elsewhere
			if err := shared.WriteHello(conn, h); err != nil {
				return err
			}
			return carry(ctx, streams, conn)
		},
	}
	cmd.Flags().StringVar(&name, "agent", agents.Default().Name, "the `agent` that the bridge asks")
	return cmd
}
