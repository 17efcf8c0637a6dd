package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/sock"
)

// A Listener is a socket on this side for a companion on the other side. Agents
// connect to it with `pollux connect --socket`, each over its own connection.
//
// One context ends everything: Close cancels the context and waits for every
// goroutine.
type Listener struct {
	// Socket is the path of the socket.
	Socket string

	target   Target
	paths    Paths
	protocol Protocol
	cancel   context.CancelFunc
	group    sync.WaitGroup

	gone chan struct{} // closed when the companion has gone
	lose func()        // closes gone
	lost chan struct{} // has a value if an agent has lost its connection
}

// Listen opens a listener in the user's own directory. The caller must close it.
func Listen(ctx context.Context, target Target, paths Paths, protocol Protocol) (*Listener, error) {
	socket, path, err := sock.ListenNew("connect")
	if err != nil {
		return nil, err
	}
	l := &Listener{
		Socket: path, target: target, paths: paths, protocol: protocol,
		gone: make(chan struct{}), lost: make(chan struct{}, 1),
	}
	l.lose = sync.OnceFunc(func() { close(l.gone) })
	ctx, l.cancel = context.WithCancel(ctx)
	l.group.Go(func() {
		sock.ServeConns(ctx, socket, func(conn net.Conn) { l.serve(ctx, conn) })
	})
	if target.Socket != "" {
		l.group.Go(func() { l.watch(ctx) })
	}
	return l, nil
}

// Gone returns a channel that is closed when the companion has gone: it has removed
// its socket, or an agent got no answer there. A companion that a command reaches may
// come back, so for such a target the channel is never closed.
func (l *Listener) Gone() <-chan struct{} { return l.gone }

// Lost returns a channel with a value for each time that the connection of an agent has ended
// on the other side: the companion has ended, or the network has failed. Losses that no one has
// received yet count as one.
func (l *Listener) Lost() <-chan struct{} { return l.lost }

// Close ends all connections and removes the socket.
func (l *Listener) Close() {
	l.cancel()
	l.group.Wait()
}

const watchInterval = 2 * time.Second

// watch notices when the companion removes its socket.
func (l *Listener) watch(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := os.Stat(l.target.Socket); errors.Is(err, os.ErrNotExist) {
			l.lose()
			return
		}
	}
}

// serve connects one agent to the companion.
func (l *Listener) serve(ctx context.Context, agent net.Conn) {
	preamble := make([]byte, len(editor.MCPPreamble))
	if _, err := io.ReadFull(agent, preamble); err != nil || string(preamble) != editor.MCPPreamble {
		return
	}
	companion, err := l.target.Open(ctx)
	if err == nil {
		err = Relay(ctx, agent, companion, l.paths, l.protocol)
		if _, ok := errors.AsType[broken](err); ok && ctx.Err() == nil {
			select {
			case l.lost <- struct{}{}:
			default:
			}
		}
		if !errors.Is(err, ErrSilent) {
			return
		}
	}
	// The agent sees that its connection has ended.
	if l.target.Socket != "" && ctx.Err() == nil {
		l.lose()
	}
}
