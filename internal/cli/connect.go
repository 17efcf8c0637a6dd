package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/remote"
)

// wayFlags are the flags that select the way to a program on another machine or in
// another container, and the names of directories there.
type wayFlags struct {
	socket, ssh, via string
	maps             []string
}

// check returns the directories of --map, or a usage error.
func (f *wayFlags) check() (remote.Paths, error) {
	if ways := without([]string{f.socket, f.ssh, f.via}, []string{""}); len(ways) > 1 {
		return nil, usageError{errors.New("--socket, --ssh and --via cannot be combined: use one")}
	}
	paths, err := remote.ParsePaths(f.maps)
	if err != nil {
		return nil, usageError{err}
	}
	return paths, nil
}

// remoteFlags are the flags that select a companion and the way to connect to
// it.
type remoteFlags struct {
	wayFlags
	dir string
}

func (f *remoteFlags) add(cmd *cobra.Command) {
	textFlag(cmd, "run.socket", &f.socket)
	textFlag(cmd, "run.ssh", &f.ssh)
	textFlag(cmd, "run.via", &f.via)
	textFlag(cmd, "run.dir", &f.dir)
	listFlag(cmd, "run.map", &f.maps)
}

// away reports whether the companion is remote or sees other paths.
func (f *remoteFlags) away() bool { return f.ssh != "" || f.via != "" || len(f.maps) > 0 }

// remoteProtocol is the protocol that remote companions speak.
var remoteProtocol = geminiide.Remote{}

// target returns the target that the flags select, and the paths there.
func (f *remoteFlags) target(ctx context.Context) (t remote.Target, paths remote.Paths, err error) {
	if paths, err = f.check(); err != nil {
		return t, nil, err
	}
	dir := f.dir
	if dir == "" && len(paths) > 0 {
		dir = paths[0].There
	}
	switch {
	case f.via != "":
		if f.dir != "" {
			return t, nil, usageError{errors.New("--dir cannot be combined with --via: pass it to pollux connect in the command")}
		}
		t.Command = remote.Via(f.via)
	case f.ssh != "":
		if dir == "" {
			if dir, err = editor.WorkingDir(); err != nil {
				return t, nil, err
			}
		}
		t.Command = remote.SSH(f.ssh, remote.ConnectCommand(dir))
	default:
		t.Socket, err = f.find(ctx, dir)
	}
	return t, paths, err
}

// find returns the socket of the companion for a directory on this machine. With
// --dir, it ignores the companion of the editor whose terminal this is.
func (f *remoteFlags) find(ctx context.Context, dir string) (string, error) {
	if f.socket == "" && f.dir != "" {
		return editor.FindFor(ctx, self(), f.dir)
	}
	return editor.Find(ctx, self(), f.socket, dir)
}

func newConnect(streams IO) *cobra.Command {
	var flags remoteFlags
	var publish bool
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Connect an agent's standard input and output to a companion",
		Long: `Speaks MCP on standard input and output for a running companion. This is the
command in GEMINI_CLI_IDE_SERVER_STDIO_COMMAND, for agents that cannot connect to
the companion's port.

The companion may be remote: behind a socket that is mounted into this container
or forwarded to this host (--socket), on a host that ssh can reach (--ssh), or
behind any other command (--via). If the project has another path there, --map
gives both paths.

At the end of standard input the command waits for the answers to the requests
that it has read, for at most 30 seconds. If one is still missing then, it reports
an error and exits with status 1.

With --publish, agents started on this machine find the remote companion until
this command ends. To run a single agent, use instead

    pollux run --attach --ssh HOST --map HERE=THERE

` + "`pollux help remote`" + ` explains dev containers, ssh and WSL, step by step.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if publish {
				ctx, stop := untilSignal(cmd.Context())
				defer stop()
				return withRemote(ctx, streams.Err, &flags, func(ctx context.Context, p published) error {
					say(streams.Err, "connected to the companion of %s; agents started in %s find it until this command ends",
						p.editor, strings.Join(p.roots, ", "))
					select {
					case <-ctx.Done():
						return nil
					case <-p.gone:
						return editor.ErrGone
					}
				})
			}
			explainServer(streams, "an agent starts this to reach a companion: to start an agent that does, "+
				"`pollux run --attach`; Ctrl-C ends it")
			target, paths, err := flags.target(cmd.Context())
			if err != nil {
				return err
			}
			if f, ok := streams.Err.(*os.File); ok {
				target.Errors = f
			}
			conn, err := target.Open(cmd.Context())
			if err != nil {
				return err
			}
			err = remote.Relay(cmd.Context(), streams.interruptible(), conn, paths, remoteProtocol)
			if errors.Is(err, remote.ErrEnded) { // all requests have their answers
				return nil
			}
			return err
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&publish, "publish", false, "let agents on this machine find the companion, until this command ends")
	return cmd
}

// connectTimeout limits the handshake with a remote companion.
const connectTimeout = 30 * time.Second

// A published is a remote companion that agents on this machine can find.
type published struct {
	editor string            // the editor's name for users
	roots  []string          // the workspace, as seen from here
	env    map[string]string // the variables that an agent needs to connect to it
	gone   <-chan struct{}   // closed when the companion has gone
	lost   <-chan struct{}   // has a value for each time that an agent has lost its connection
}

// withRemote publishes a remote companion on this machine while f runs. A signal ends the
// context of f. An interrupt does not, since f handles it; before f runs, it ends withRemote.
func withRemote(ctx context.Context, errs io.Writer, flags *remoteFlags, f func(context.Context, published) error) error {
	running, stop := untilTerminated(ctx)
	defer stop()
	own, stopInterrupt := untilSignal(running)
	defer stopInterrupt()
	target, paths, err := flags.target(own)
	if err != nil {
		return err
	}
	greeting, cancel := context.WithTimeout(own, connectTimeout)
	defer cancel()
	say(errs, "connecting ...")
	title, rootsThere, err := target.Greet(greeting, remoteProtocol)
	if own.Err() != nil {
		return interrupted
	}
	if err != nil {
		return err
	}
	title = cmp.Or(title, "Pollux")
	dir, err := editor.WorkingDir()
	if err != nil {
		return err
	}
	if err := paths.Fit(rootsThere, dir); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	roots := paths.Roots()
	if len(roots) == 0 {
		roots = []string{dir}
	}
	listener, err := remote.Listen(ctx, target, paths, remoteProtocol)
	if err != nil {
		return err
	}
	defer listener.Close()
	end := geminiide.Endpoint{
		Info: editor.Info{Name: "pollux", DisplayName: title}, Roots: roots,
		PIDs:  geminiide.TerminalPIDs(os.Getpid(), os.Getenv),
		Stdio: []string{exe, "connect", "--socket", listener.Socket},
	}
	pub, err := geminiide.Publish(end)
	if err != nil {
		return err
	}
	defer pub.Remove()
	if own.Err() != nil {
		return interrupted
	}
	return f(running, published{editor: title, roots: roots, env: end.Env(), gone: listener.Gone(), lost: listener.Lost()})
}

// pipe connects the standard streams to a companion's socket until one of them
// ends.
func pipe(ctx context.Context, streams IO, path string) error {
	conn, err := editor.Connect(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return carry(ctx, streams, conn)
}

// carry copies the standard input to a connection, and what arrives there to the
// standard output, until one of them ends.
func carry(ctx context.Context, streams IO, conn io.ReadWriter) error {
	copies, ended := errgroup.WithContext(ctx) // io.EOF from one copy ends both
	copies.Go(func() error {
		_, err := io.Copy(conn, streams.In)
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
		return cmp.Or(err, io.EOF)
	})
	copies.Go(func() error {
		_, err := io.Copy(streams.Out, conn)
		return cmp.Or(err, io.EOF)
	})
	err := await(ended, copies.Wait)
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
