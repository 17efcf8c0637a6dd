//go:build unix

package sys

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// SocketType is the type of the file of a socket; see [ListenSocket].
const SocketType = fs.ModeSocket

const (
	// maxSocketPath is the longest path of a unix socket in bytes: 103 on macOS, 107 on
	// Linux.
	maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1
	// maxRuntimeDir is the longest path of the directory of sockets in bytes. It leaves
	// room for their names, such as connect-4194304-0a1b2c.sock.
	maxRuntimeDir = maxSocketPath - 28
)

func listenSocket(path string) (SocketListener, error) {
	if len(path) > maxSocketPath {
		// The message does not repeat the path, so that the next step fits on a line.
		return nil, fmt.Errorf("%w (%d bytes; this system allows %d)", ErrLongPath, len(path), maxSocketPath)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func isPipe(string) bool { return false }

func pipePeer(net.Conn) (pid int, ok bool) { return 0, false }

func isSocket(string) (bool, error) { return true, nil } // the type says it

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}
