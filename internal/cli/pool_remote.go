package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/shared"
	"pollux/internal/bridge"
	"pollux/internal/remote"
	"pollux/internal/sys/sock"
)

// poolFlags are the flags that select a pool on another machine or in another container.
type poolFlags struct{ wayFlags }

func (f *poolFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.socket, "socket", "", "use the pool with this socket: the `path` at which it is mounted or forwarded")
	fs.StringVar(&f.ssh, "ssh", "", "use the pool on this `host`, with ssh; pollux must be installed there")
	fs.StringVar(&f.via, "via", "", "use the pool that this shell `command` reaches: it runs pollux pool connect there")
	fs.StringArrayVar(&f.maps, "map", nil,
		"a directory's path here and where the pool runs, `HERE=THERE`; may be repeated")
}

// away reports whether the flags name a pool, or try to.
func (f *poolFlags) away() bool {
	return f.socket != "" || f.ssh != "" || f.via != "" || len(f.maps) > 0
}

// open returns a runner for the pool selected by the flags. It does not connect yet.
// Without that pool, requests fail: a process here would see other files, or use
// another account.
func (f *poolFlags) open(cfg bridge.Config) (agent.Runner, error) {
	paths, err := f.check()
	if err != nil {
		return nil, err
	}
	c := shared.Config{
		There: paths.ToThere, Here: paths.ToHere, RequireWall: cfg.Runner.Wall.Mode == agent.WallRequired, Log: cfg.Log,
	}
	switch {
	case f.socket != "":
		c.Connect = f.dial
		// Without a source, the agent runs with the pool's own environment.
		c.Hello = &shared.Hello{Protocol: shared.Protocol, Agent: cfg.Agent.Name}
		c.Explain = f.noAnswer
	case f.ssh != "":
		command := "pollux pool connect"
		if cfg.Agent != agents.Default() {
			command += " --agent " + cfg.Agent.Name
		}
		c.Connect, c.Explain = connectWith(remote.SSH(f.ssh, command)), noPool
	case f.via != "" && cfg.Agent != agents.Default():
		return nil, usageError{fmt.Errorf("--via reaches %s only: ask %s through --ssh or --socket", agents.Default().DisplayName, cfg.Agent.DisplayName)}
	case f.via != "":
		c.Connect, c.Explain = connectWith(remote.Via(f.via)), noPool
	default:
		return nil, usageError{errors.New("--map needs the way to another pool: add --ssh, --socket or --via")}
	}
	return shared.NewClient(c), nil
}

// dial connects to the socket of a pool.
func (f *poolFlags) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := sock.Dial(ctx, f.socket)
	if err != nil {
		return nil, f.noAnswer(ctx, nil, err)
	}
	return conn, nil
}

func (f *poolFlags) noAnswer(_ context.Context, _ io.ReadWriteCloser, err error) error {
	if errors.Is(err, sock.ErrForeign) {
		return err
	}
	return fmt.Errorf("no pool answers at %s (%v): is one running, and is this its socket? "+
		"pollux pool, where the pool runs, starts one and prints its socket", f.socket, remote.Cause(err))
}

// connectWith returns a function that connects to a pool with a command.
func connectWith(command func() *exec.Cmd) func(context.Context) (io.ReadWriteCloser, error) {
	return func(context.Context) (io.ReadWriteCloser, error) {
		conn, err := remote.Start(command())
		if errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%w: install it, or set POLLUX_SSH", err)
		}
		return conn, err
	}
}

func noPool(ctx context.Context, conn io.ReadWriteCloser, err error) error {
	return remote.NoAnswer(ctx, conn, "pool", err)
}
