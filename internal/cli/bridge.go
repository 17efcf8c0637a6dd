package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/shared"
	"pollux/internal/bridge"
	"pollux/internal/config"
	"pollux/internal/termtext"
)

// bridgeCommand is the name of the command that MCP clients start.
const bridgeCommand = "bridge"

func newBridge(streams IO) *cobra.Command {
	var logs logFlags
	var there poolFlags
	cmd := &cobra.Command{
		Use:   bridgeCommand,
		Short: "Let an MCP client ask other agents, on standard input and output",
		Long: `Runs an MCP server on standard input and output, for Claude Code, Codex, Cursor,
VS Code and every other MCP client. Its tools ask other agents:
` + strings.Join(askable(), ", ") + `.
The client starts it; pollux install bridge adds it to a client's settings.

An agent that is asked can read and search, but change nothing, no matter what its
settings say. Environment variables, with defaults in parentheses:

` + config.Variables("bridge", "pool", "log") + `
pollux config shows the values in use. config.toml can set them, too.

With --ssh, --socket or --via, the agent runs where another pool runs: signed in
there, and with the files there. If a directory has another name there, --map
gives both names. ` + "`pollux help pool`" + ` explains it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unchanged := func(*bridge.Config) {}
			if err := loadSettings().FileErr(); err != nil {
				return serveBroken(cmd.Context(), streams, err)
			}
			return withBridge(cmd.Context(), streams, &logs, &there, unchanged, func(ctx context.Context, b *bridge.Bridge) error {
				explainServer(streams, "this is an MCP server, which an MCP client starts: "+
					"to set it up, `pollux install bridge CLIENT`; Ctrl-C ends it")
				b.Publish() // on failure, only `pollux status` is affected
				return serveBridge(ctx, b, streams)
			})
		},
	}
	logs.add(cmd)
	there.add(cmd)
	return cmd
}

// serveBridge serves a bridge to the client on the standard streams, until the
// client disconnects or ctx ends.
func serveBridge(ctx context.Context, b *bridge.Bridge, streams IO) error {
	return bridge.NewServer(b).Run(ctx, streams.interruptible())
}

// openRunner returns the runner of a bridge: the runner of the pool that the flags select,
// of the pool on this machine, or one for this bridge alone.
func openRunner(cfg bridge.Config, there *poolFlags) (agent.Runner, error) {
	if there.away() {
		return there.open(cfg)
	}
	local := func() (agent.Runner, error) { return agents.Open(cfg.Agent, cfg.Runner) }
	if cfg.NoPool {
		return local()
	}
	connect, err := localPool()
	if err != nil {
		cfg.Log.Warn("the pool cannot be used: this bridge runs its own processes", "error", err)
		return local()
	}
	h := hello(cfg)
	return shared.NewClient(shared.Config{
		Connect: connect, Hello: &h, Local: local,
		Check: func(ctx context.Context, from agent.Source) (agent.Program, error) {
			program, err := cfg.Agent.Check(ctx, from)
			return program, cmp.Or(err, cfg.Runner.Wall.Check(cfg.Agent))
		},
		RequireWall: cfg.Runner.Wall.Mode == agent.WallRequired, Log: cfg.Log,
	}), nil
}

// bridgeConfig returns the bridge's configuration, from the environment and the file.
func bridgeConfig() (bridge.Config, error) {
	v := loadSettings()
	err := v.ErrFor(func(s config.Setting) bool { return slices.Contains([]string{"bridge", "pool", "log"}, s.Table()) })
	cfg := bridge.Configure(agents.Default(), v)
	for _, row := range agents.Others(v.Agents()...) {
		cfg.Others = append(cfg.Others, bridge.Asked{
			Agent: row, Source: source(row), FallbackModel: row.FallbackModel,
		})
	}
	cfg.Runner.Wall = thisWall(cfg.Runner.Wall.Mode)
	if all := askable(v.Agents()...); err == nil && cfg.Prefer != "" && !slices.Contains(all, cfg.Prefer) {
		err = fmt.Errorf("%s is %q: it must be one of %s", v.Origin("bridge.agent"), cfg.Prefer, strings.Join(all, ", "))
	}
	return cfg, err
}

// withBridge calls f with a bridge. A signal ends f's context.
func withBridge(ctx context.Context, streams IO, logs *logFlags, there *poolFlags, change func(*bridge.Config),
	f func(context.Context, *bridge.Bridge) error) error {
	log, err := logs.open(streams.Err)
	if err != nil {
		return err
	}
	cfg, err := bridgeConfig()
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
	cfg.Open = func(a bridge.Asked) (agent.Runner, error) {
		other := cfg
		other.Asked, other.Others = a, nil
		return openRunner(other, there)
	}
	if there.away() { // what is installed there is not known
		cfg.Usable = func(a bridge.Asked) bool { return a.Agent.Name == cmp.Or(cfg.Prefer, cfg.Agent.Name) }
	}
	b, err := bridge.New(runner, cfg)
	if err != nil {
		return errors.Join(err, runner.Close())
	}
	return errors.Join(f(ctx, b), b.Close())
}

// serveBroken serves a bridge whose file of settings is invalid. Clients hide what a server
// writes when it cannot start, so each call returns the problem instead.
func serveBroken(ctx context.Context, streams IO, problem error) error {
	text := strings.ReplaceAll(problem.Error(), "\n", "; ")
	say(streams.Err, "%s", text)
	ctx, stop := untilSignal(ctx)
	defer stop()
	cfg := bridge.Configure(agents.Default(), config.Defaults())
	cfg.Version = version()
	cfg.Open = func(bridge.Asked) (agent.Runner, error) {
		return nil, &agent.Error{
			Kind: agent.Settings, Message: termtext.Line(text, maxProblem),
			Remedy: agent.Remedy{What: "Pollux's settings are invalid", Next: "correct the file, then restart this MCP server"},
		}
	}
	b, err := bridge.New(nil, cfg)
	if err != nil {
		return err
	}
	return errors.Join(serveBridge(ctx, b, streams), b.Close())
}

// maxProblem limits the problem with the settings in the answer to a call, in bytes.
const maxProblem = 2000
