package editor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"pollux/internal/sys"
)

// EnvSocket is the environment variable with the socket of the companion that
// commands must use.
const EnvSocket = "POLLUX_SOCKET"

// ErrForeign reports that a socket belongs to another user.
var ErrForeign = errors.New("belongs to another user: use a socket in a directory that you own")

// Dial connects to a companion's socket. It fails with [ErrForeign] if another
// user may have put it there: the socket must belong to the user or to root, or
// to the owner of a directory that nobody else can write, such as one that was
// mounted into a container.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var info fs.FileInfo
	if target, err := filepath.EvalSymlinks(path); err == nil { // otherwise the dial fails too
		if info, err = os.Stat(target); err != nil {
			return nil, err
		}
		dir, err := os.Stat(filepath.Dir(target))
		if err != nil {
			return nil, err
		}
		if !sys.Own(info) && !sys.Administered(info) && (!sys.SameOwner(info, dir) || dir.Mode().Perm()&0o022 != 0) {
			return nil, fmt.Errorf("%s %w", path, ErrForeign)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if info != nil && !sys.TrustedPeer(conn, info) {
		conn.Close()
		return nil, fmt.Errorf("%s %w", path, ErrForeign)
	}
	return conn, nil
}

// SocketPath returns the path of the socket of the companion with that process
// and port.
func SocketPath(pid, port int) (string, error) {
	dir, err := sys.RuntimeDir()
	return filepath.Join(dir, fmt.Sprintf("%d-%d.sock", pid, port)), err
}

// leftSockets are the sockets of killed companions.
var leftSockets = sys.Leftovers{Pattern: "[0-9]*-*.sock", Type: fs.ModeSocket, Abandoned: sys.RefusesConnections}

// Sockets lists the sockets of the user's running companions. It removes what
// killed companions left behind.
func Sockets() ([]string, error) {
	dir, err := sys.RuntimeDir()
	if err != nil {
		return nil, err
	}
	leftSockets.Remove(dir)
	entries, err := os.ReadDir(dir)
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
