package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/adapter"
	"pollux/internal/companion"
)

func newConnect(streams IO) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Carry Gemini CLI's stdio transport to a running companion",
		Long: `Speaks MCP on standard input and output for a running companion: what
GEMINI_CLI_IDE_SERVER_STDIO_COMMAND names, for CLIs that cannot dial the
companion's port.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := findCompanion(cmd.Context(), socket, "")
			if err != nil {
				return err
			}
			return pipe(cmd.Context(), streams, path, adapter.MCPPreamble)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the `path` of the companion's socket")
	return cmd
}

// pipe joins the standard streams to a companion's socket until either ends.
func pipe(ctx context.Context, streams IO, path, preamble string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return errGone
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

// findCompanion returns the socket of a running companion: the one named, by
// flag or environment, else the one whose workspace holds the file or, with no
// file, the working directory. The most specific workspace wins, then a
// companion that a CLI is connected to, then the newest.
func findCompanion(ctx context.Context, socket, file string) (string, error) {
	if socket == "" {
		socket = os.Getenv(adapter.EnvSocket)
	}
	if socket != "" {
		return socket, nil
	}
	if file == "" {
		wd, err := os.Getwd()
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
			if !companion.Inside(root, file) {
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
	adapter.Status
	socket  string
	stopped bool // it did not answer
}

// companions asks every running companion for its status, the newest first.
func companions(ctx context.Context) ([]running, error) {
	paths, err := adapter.Sockets()
	if err != nil {
		return nil, err
	}
	var all []running
	for _, path := range paths {
		var st adapter.Status
		err := ask(ctx, path, func(ctx context.Context, c *adapter.Client, _ adapter.InitializeResult) (err error) {
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
func ask(ctx context.Context, path string, f func(context.Context, *adapter.Client, adapter.InitializeResult) error) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	conn, err := net.Dial("unix", path)
	if err != nil {
		return errGone
	}
	c := adapter.NewClient(conn, adapter.Handler{})
	defer c.Close()
	info, err := c.Initialize(ctx, adapter.InitializeParams{Client: adapter.Implementation{Name: "pollux", Version: version()}})
	if err != nil {
		return err
	}
	return f(ctx, c, info)
}
