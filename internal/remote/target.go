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

// A Companion describes a companion that answered.
type Companion struct {
	// Editor is the title of its editor.
	Editor string
	// Roots are the roots of its workspace, by their names there; empty if unknown.
	Roots []string
}

// maxTitle limits an editor's title, in bytes.
const maxTitle = 80

// Greet connects as an agent does, and disconnects.
func (t Target) Greet(ctx context.Context, protocol Protocol) (Companion, error) {
	conn, err := t.Open(ctx)
	if err != nil {
		return Companion{}, err
	}
	defer conn.Close()
	title, roots, err := protocol.Greet(ctx, conn)
	if err == nil {
		return Companion{termtext.Line(title, maxTitle), roots}, nil
	}
	return Companion{}, NoAnswer(ctx, conn, "companion", err)
}
