// Package remote connects an agent to a companion that it cannot dial: in a container
// and on its host, on two machines, in WSL and Windows. It also starts the commands, and
// translates the paths, with which a bridge reaches a pool elsewhere.
//
// For a companion, it carries the agent's stdio transport, one message on each line, to the
// companion's socket, directly or through a command such as ssh, and translates the
// paths in the messages. Everything else passes unchanged. Which fields of a message
// hold paths is the business of a [Protocol].
package remote

import (
	"context"
	"errors"
	"io"
	"sync"

	"pollux/internal/editor"
	"pollux/internal/jsonl"
)

// A Protocol handles the messages between an agent and a companion. The package of
// the agent's protocol implements it.
type Protocol interface {
	// Greet introduces this program on a new connection, and returns the title of
	// the companion's editor and the roots of its workspace, by their names there;
	// empty if the companion does not say. The caller closes the connection.
	Greet(ctx context.Context, conn io.ReadWriter) (title string, roots []string, err error)
	// Translate returns functions that translate the paths in the lines of one
	// connection: outgoing those from the agent, incoming those from the companion.
	// The two may run at the same time. toThere and toHere translate one path; they
	// report false for a path that has no name on the other side.
	Translate(toThere, toHere func(path string) (string, bool)) (outgoing, incoming func(line []byte) []byte)
}

// ErrSilent means that the companion's side of a relay ended without a message.
var ErrSilent = errors.New("no companion has answered there")

// Relay carries messages between an agent and a companion until either side or the
// context ends, and closes both connections. It returns the error of the side that
// ended first: nil at the end of its stream, or [ErrSilent].
func Relay(ctx context.Context, agent, companion io.ReadWriteCloser, paths Paths, protocol Protocol) error {
	outgoing, incoming := unchanged, unchanged
	if len(paths) > 0 {
		outgoing, incoming = protocol.Translate(paths.ToThere, paths.ToHere)
	}
	ctx, end := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		_, err := carry(companion, agent, outgoing)
		end(err)
	})
	group.Go(func() {
		n, err := carry(agent, companion, incoming)
		if n == 0 && err == io.EOF {
			err = ErrSilent
		}
		end(err)
	})
	<-ctx.Done()
	companion.Close()
	agent.Close()
	group.Wait()
	if err := context.Cause(ctx); err != io.EOF {
		return err
	}
	return nil
}

func unchanged(line []byte) []byte { return line }

// carry copies lines until an error, which is io.EOF at the end, and returns how many
// it has read.
func carry(to io.Writer, from io.Reader, translate func([]byte) []byte) (n int, err error) {
	lines := jsonl.NewReader(from, editor.MaxMessage)
	for {
		line, err := lines.ReadLine()
		if err != nil {
			return n, err
		}
		n++
		if _, err := to.Write(translate(line)); err != nil {
			return n, err
		}
	}
}
