//go:build unix

package sys

import (
	"context"
	"io/fs"
	"net"
	"os"
)

// SocketType is the type of the file of a socket; see [ListenSocket].
const SocketType = fs.ModeSocket

func listenSocket(path string) (SocketListener, error) {
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

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}
