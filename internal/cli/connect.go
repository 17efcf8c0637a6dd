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
	"path/filepath"
	"slices"
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

// door is the way to the companion.
func (f *remoteFlags) door(ctx context.Context, command string) (d remote.Door, paths remote.Paths, err error) {
	wrong := func(text string) (remote.Door, remote.Paths, error) {
		return d, nil, usageError{errors.New(text), command}
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
		d.Command = remote.Via(f.via)
	case f.ssh != "":
		if dir == "" {
			if dir, err = workingDir(); err != nil {
				return d, nil, err
			}
		}
		d.Command = remote.SSH(f.ssh, dir)
	default:
		d.Socket, err = f.find(ctx, dir)
	}
	return d, paths, err
}

// find is the socket of the companion of a directory on this machine. One that
// was asked for by --dir is not that of the editor in whose terminal this is.
func (f *remoteFlags) find(ctx context.Context, dir string) (string, error) {
	if f.socket == "" && f.dir != "" {
		return companionOf(ctx, f.dir)
	}
	return findCompanion(ctx, f.socket, dir)
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
						return errGone
					}
				})
			}
			door, paths, err := flags.door(cmd.Context(), cmd.CommandPath())
			if err != nil {
				return err
			}
			if f, ok := streams.Err.(*os.File); ok {
				door.Errors = f
			}
			conn, err := door.Open(cmd.Context())
			if err != nil {
				return err
			}
			return remote.Relay(interruptible(streams), conn, paths)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&publish, "publish", false, "make the companion one that CLIs find here, until this is ended")
	return cmd
}

// workingDir is the working directory by its real path, as the CLIs name it.
func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", errors.New("the working directory is gone: cd to another one")
	}
	return dir, nil
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
	door, paths, err := flags.door(own, command)
	if err != nil {
		return err
	}
	greeting, cancel := context.WithTimeout(own, 30*time.Second)
	defer cancel()
	fmt.Fprintln(errs, "pollux: connecting ...")
	far, err := door.Greet(greeting)
	if own.Err() != nil {
		return interrupted
	}
	if err != nil {
		return err
	}
	title := cmp.Or(far.Editor, "Pollux")
	dir, err := workingDir()
	if err != nil {
		return err
	}
	if err := paths.Fit(far.Roots, dir); err != nil {
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
	front, err := remote.Listen(ctx, door, paths)
	if err != nil {
		return err
	}
	defer front.Close()
	end := geminiide.Endpoint{
		Info: editor.Info{Name: "pollux", DisplayName: title}, Roots: roots,
		PIDs:  geminiide.TerminalPIDs(os.Getpid(), os.Getenv),
		Stdio: []string{exe, "connect", "--socket", front.Socket},
	}
	pub, err := geminiide.Publish(end)
	if err != nil {
		return err
	}
	defer pub.Remove()
	stop()
	return f(published{editor: title, roots: roots, env: end.Env(), gone: front.Gone()})
}

// pipe joins the standard streams to a companion's socket until either ends.
func pipe(ctx context.Context, streams IO, path, preamble string) error {
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, preamble); err != nil {
		return errGone
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

var errGone = errors.New("the companion is gone: start the editor again, or `pollux run`")

// dial connects to a companion's socket.
func dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := editor.Dial(ctx, path)
	if err != nil && !errors.Is(err, editor.ErrForeign) {
		err = errGone
	}
	return conn, err
}

// findCompanion returns the socket of a running companion: the one named, by
// flag or environment, else the one whose workspace holds the file or, with no
// file, the working directory. The most specific workspace wins, then a
// companion that a CLI is connected to, then the newest.
func findCompanion(ctx context.Context, socket, file string) (string, error) {
	if socket == "" {
		socket = os.Getenv(editor.EnvSocket)
	}
	if socket != "" {
		return socket, nil
	}
	return companionOf(ctx, file)
}

// companionOf returns the socket of the companion whose workspace holds the file.
func companionOf(ctx context.Context, file string) (string, error) {
	if file == "" {
		wd, err := workingDir()
		if err != nil {
			return "", err
		}
		file = wd
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	all, err := companions(ctx)
	if err != nil {
		return "", err
	}
	best, length := running{}, -1
	for _, c := range all {
		for _, root := range c.Roots {
			if !sys.Inside(root, file) {
				continue
			}
			used := len(c.Clients) > 0 && len(best.Clients) == 0
			if len(root) > length || len(root) == length && used {
				best, length = c, len(root)
			}
		}
	}
	if best.socket == "" {
		return "", fmt.Errorf("no companion is running for %s: start one with `pollux run` in its project", file)
	}
	return best.socket, nil
}

// A running is a companion that answered.
type running struct {
	editor.Status
	socket  string
	stopped bool // it did not answer
}

// companions asks every running companion for its status, the newest first.
func companions(ctx context.Context) ([]running, error) {
	paths, err := editor.Sockets()
	if err != nil {
		return nil, err
	}
	var all []running
	for _, path := range paths {
		var st editor.Status
		err := ask(ctx, path, func(ctx context.Context, c *editor.Client, _ editor.InitializeResult) (err error) {
			st, err = c.Status(ctx)
			return err
		})
		if err == nil {
			all = append(all, running{Status: st, socket: path})
		} else if errors.Is(err, context.DeadlineExceeded) {
			all = append(all, running{socket: path, stopped: true})
		}
	}
	slices.SortFunc(all, func(a, b running) int { return int(b.Started - a.Started) })
	return all, nil
}

// askWithin bounds a conversation: a companion that is stopped, by Ctrl-Z for
// instance, still takes connections.
const askWithin = 2 * time.Second

// ask attaches to a companion for one conversation.
func ask(ctx context.Context, path string, f func(context.Context, *editor.Client, editor.InitializeResult) error) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	c := editor.NewClient(conn, editor.Handler{})
	defer c.Close()
	info, err := c.Initialize(ctx, editor.InitializeParams{Client: editor.Implementation{Name: "pollux", Version: version()}})
	if err != nil {
		return err
	}
	return f(ctx, c, info)
}
