package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/remote"
	"pollux/internal/sys"
)

// remoteFlags say where a companion is that a CLI cannot dial.
type remoteFlags struct {
	socket, ssh, via, dir string
	maps                  []string
}

func (f *remoteFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.socket, "socket", "", "the `path` of the companion's socket, or of one that is forwarded to it")
	fs.StringVar(&f.ssh, "ssh", "", "reach the companion on this `host`, by ssh and the pollux there")
	fs.StringVar(&f.via, "via", "", "reach it by this shell `command`, which runs pollux connect beside it")
	fs.StringVar(&f.dir, "dir", "", "the `directory` whose companion is meant, by its name there")
	fs.StringArrayVar(&f.maps, "map", nil, "a directory's name here and there, `HERE=THERE`; may be repeated")
}

// away reports whether the companion is somewhere else, or sees other paths.
func (f *remoteFlags) away() bool { return f.ssh != "" || f.via != "" || len(f.maps) > 0 }

// remoteProtocol is the protocol that remote companions speak.
var remoteProtocol = geminiide.Remote{}

// target returns where the companion is, and the paths there.
func (f *remoteFlags) target(ctx context.Context, command string) (t remote.Target, paths remote.Paths, err error) {
	wrong := func(text string) (remote.Target, remote.Paths, error) {
		return t, nil, usageError{errors.New(text), command}
	}
	ways := 0
	for _, way := range []string{f.socket, f.ssh, f.via} {
		if way != "" {
			ways++
		}
	}
	if ways > 1 {
		return wrong("--socket, --ssh and --via are three ways: name one")
	}
	if paths, err = remote.ParsePaths(f.maps); err != nil {
		return wrong(err.Error())
	}
	dir := f.dir
	if dir == "" && len(paths) > 0 {
		dir = paths[0].There
	}
	switch {
	case f.via != "":
		if f.dir != "" {
			return wrong("--dir does not go with --via: give it to the pollux connect in the command")
		}
		t.Command = remote.Via(f.via)
	case f.ssh != "":
		if dir == "" {
			if dir, err = editor.WorkingDir(); err != nil {
				return t, nil, err
			}
		}
		t.Command = remote.SSH(f.ssh, dir)
	default:
		t.Socket, err = f.find(ctx, dir)
	}
	return t, paths, err
}

// find is the socket of the companion of a directory on this machine. One that
// was asked for by --dir is not that of the editor in whose terminal this is.
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
		Short: "Carry Gemini CLI's stdio transport to a companion, also of another host or container",
		Long: `Speaks MCP on standard input and output for a running companion: what
GEMINI_CLI_IDE_SERVER_STDIO_COMMAND names, for CLIs that cannot dial the
companion's port.

The companion may be elsewhere: behind a socket that is mounted into this
container or forwarded to this host (--socket), on a host that ssh reaches
(--ssh), or wherever a command leads (--via). Where a project has another name
there, --map tells both.

With --publish it does not speak itself, but makes such a companion one that
CLIs find here, until it is ended. To run one CLI, rather use

    pollux run --attach --ssh HOST --map HERE=THERE

docs/REMOTE.md has the ways for dev containers, ssh and WSL, step by step.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !flags.away() && !publish {
				path, err := flags.find(cmd.Context(), "")
				if err != nil {
					return err
				}
				return pipe(cmd.Context(), streams, path, editor.MCPPreamble)
			}
			if publish {
				ctx, stop := signal.NotifyContext(cmd.Context(), sys.TerminationSignals...)
				defer stop()
				return withRemote(ctx, streams.Err, &flags, cmd.CommandPath(), func(p published) error {
					fmt.Fprintf(streams.Err, "pollux: connected to the companion of %s; CLIs started in %s find it until this is ended\n", p.editor, strings.Join(p.roots, ", "))
					select {
					case <-ctx.Done():
						return nil
					case <-p.gone:
						return editor.ErrGone
					}
				})
			}
			target, paths, err := flags.target(cmd.Context(), cmd.CommandPath())
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
			return remote.Relay(cmd.Context(), interruptible(streams), conn, paths, remoteProtocol)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&publish, "publish", false, "make the companion one that CLIs find here, until this is ended")
	return cmd
}

// interruptible are the standard streams, whose reading can be ended.
func interruptible(streams IO) io.ReadWriteCloser {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, streams.In)
		w.CloseWithError(err)
	}()
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{r, streams.Out, r}
}

// A published is a companion elsewhere that CLIs find here.
type published struct {
	editor string            // what to call it
	roots  []string          // for CLIs that are started there
	env    map[string]string // leads a CLI to it
	gone   <-chan struct{}   // closed when it is gone
}

// withRemote makes a companion elsewhere one that CLIs find here, for as long
// as f runs.
func withRemote(ctx context.Context, errs io.Writer, flags *remoteFlags, command string, f func(published) error) error {
	// Until f has the signals, they end this.
	own, stop := signal.NotifyContext(ctx, sys.TerminationSignals...)
	defer stop()
	target, paths, err := flags.target(own, command)
	if err != nil {
		return err
	}
	greeting, cancel := context.WithTimeout(own, 30*time.Second)
	defer cancel()
	fmt.Fprintln(errs, "pollux: connecting ...")
	companion, err := target.Greet(greeting, remoteProtocol)
	if own.Err() != nil {
		return interrupted
	}
	if err != nil {
		return err
	}
	title := cmp.Or(companion.Editor, "Pollux")
	dir, err := editor.WorkingDir()
	if err != nil {
		return err
	}
	if err := paths.Fit(companion.Roots, dir); err != nil {
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
	stop()
	return f(published{editor: title, roots: roots, env: end.Env(), gone: listener.Gone()})
}

// pipe joins the standard streams to a companion's socket until either ends.
func pipe(ctx context.Context, streams IO, path, preamble string) error {
	conn, err := editor.Connect(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, preamble); err != nil {
		return editor.ErrGone
	}
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(conn, streams.In)
		conn.(*net.UnixConn).CloseWrite()
		ended <- err
	}()
	go func() {
		_, err := io.Copy(streams.Out, conn)
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return err
}
