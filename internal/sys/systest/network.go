package systest

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// A Network replaces the listener of a server, so that time stands still in a test with
// synctest. Its connections have no buffers.
type Network struct {
	dialed chan net.Conn
	close  func()
	ended  chan struct{}

	mu       sync.Mutex
	accepted []net.Conn
}

// NewNetwork returns a network without connections.
func NewNetwork() *Network {
	n := &Network{dialed: make(chan net.Conn), ended: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.ended) })
	return n
}

// Accept implements [net.Listener].
func (n *Network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.dialed:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.accepted = append(n.accepted, conn)
		return conn, nil
	case <-n.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (n *Network) Close() error { n.close(); return nil }

// Closed reports whether the server has stopped listening.
func (n *Network) Closed() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

// Disconnect closes the listener and all connections, as if the server's process had ended.
func (n *Network) Disconnect() {
	n.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.accepted {
		conn.Close()
	}
}

// Addr implements [net.Listener].
func (n *Network) Addr() net.Addr { return &net.TCPAddr{} }

// Dial connects to the server at any address. It waits until the server accepts.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case n.dialed <- theirs:
		return mine, nil
	case <-n.ended:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
