package systest

import (
	"context"
	"net"
	"sync"
)

// A Network replaces the listener of a server, so that time stands still in a test with
// synctest. Its connections have no buffers.
type Network struct {
	conns chan net.Conn
	close func()
	ended chan struct{}
}

// NewNetwork returns a network without connections.
func NewNetwork() *Network {
	n := &Network{conns: make(chan net.Conn), ended: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.ended) })
	return n
}

// Accept implements [net.Listener].
func (n *Network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (n *Network) Close() error { n.close(); return nil }

// Addr implements [net.Listener].
func (n *Network) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects to the server at any address. It waits until the server accepts.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		return mine, nil
	case <-n.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
