package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"pollux/internal/editor"
	"pollux/internal/termtext"
)

// A Target says how to reach a companion.
type Target struct {
	// Socket is the path of the companion's Unix socket, or of one that is forwarded
	// to it.
	Socket string
	// Command, if there is no socket, returns a new command that connects its
	// standard streams to the companion, as `pollux connect` does.
	Command func() *exec.Cmd
	// Errors receives the standard error of the command. If it is nil, the error of
	// [Target.Greet] quotes the end of it.
	Errors *os.File
}

// Open connects. On the connection, the agent and the companion exchange messages,
// one on each line.
func (t Target) Open(ctx context.Context) (io.ReadWriteCloser, error) {
	if t.Socket == "" {
		return startCommand(t.Command(), t.Errors, endTimeout)
	}
	conn, err := editor.Dial(ctx, t.Socket)
	if errors.Is(err, editor.ErrForeign) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("no companion answers at %s (%v): is it running, and is this its socket? "+
			"`pollux status --json` shows it", t.Socket, Cause(err))
	}
	if _, err := io.WriteString(conn, editor.MCPPreamble); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Cause returns a connection's error without the addresses.
func Cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// maxTitle limits an editor's title, in bytes.
const maxTitle = 80

// Greet connects as an agent does, and disconnects. It returns the title of the companion's
// editor, and the roots of its workspace by their names there, empty if unknown.
func (t Target) Greet(ctx context.Context, protocol Protocol) (title string, roots []string, err error) {
	conn, err := t.Open(ctx)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	if title, roots, err = protocol.Greet(ctx, conn); err != nil {
		return "", nil, NoAnswer(ctx, conn, "companion", err)
	}
	return termtext.Line(title, maxTitle), roots, nil
}
