package editor

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
)

// EnvSocket is the environment variable with the socket of the companion that
// commands must use.
const EnvSocket = "POLLUX_SOCKET"

// ErrForeign reports that a socket belongs to another user.
var ErrForeign = sock.ErrForeign

// Dial connects to a companion's socket. It fails with [ErrForeign] if another
// user may have put it there: see [sock.Dial].
func Dial(ctx context.Context, path string) (net.Conn, error) { return sock.Dial(ctx, path) }

// SocketPath returns the path of the socket of the companion with that process
// and port.
func SocketPath(pid, port int) (string, error) {
	dir, err := disk.RuntimeDir()
	return filepath.Join(dir, fmt.Sprintf("%d-%d.sock", pid, port)), err
}

// leftSockets are the sockets of killed companions.
var leftSockets = sock.Leftovers("[0-9]*-*.sock")

// Sockets lists the sockets of the user's running companions. It removes what
// killed companions left behind.
func Sockets() ([]string, error) {
	dir, err := disk.RuntimeDir()
	if err != nil {
		return nil, err
	}
	leftSockets.Remove(dir)
	entries, err := disk.ReadDir(dir)
	var sockets []string
	for _, e := range entries {
		if ok, _ := filepath.Match(leftSockets.Pattern, e.Name()); ok && e.Type() == leftSockets.Type {
			sockets = append(sockets, filepath.Join(dir, e.Name()))
		}
	}
	return sockets, err
}

// MCPPreamble is the first line of a connection to a companion's socket that
// carries MCP, one message per line, instead of the editor protocol.
const MCPPreamble = "MCP\n"
