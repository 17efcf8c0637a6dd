//go:build unix

package sock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// FileType is the type of the file of a socket; see [Listen].
const FileType = fs.ModeSocket

// maxSocketPath is the longest path of a unix socket in bytes: 103 on macOS, 107 on Linux.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

func listenSocket(path string) (Listener, error) {
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

// Refused reports whether a dial failed because no process listens.
func Refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func listenPrivate(name string) (l net.Listener, scheme, address string, err error) {
	l, address, err = ListenNew(name)
	return l, "unix", address, err
}
