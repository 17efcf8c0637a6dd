// Package sock listens and connects where only the user can, and finds who is at the other
// end of a connection.
package sock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"pollux/internal/sys/disk"
)

// ErrForeign reports that a socket belongs to another user.
var ErrForeign = errors.New("belongs to another user: use a socket in a directory that you own")

// ErrLongPath reports that the path of a socket is longer than the system allows.
var ErrLongPath = errors.New("the path of the socket is too long")

// A Listener is a listener of [Listen].
type Listener interface {
	net.Listener
	// SetUnlinkOnClose sets whether Close removes the file of the socket. It does by
	// default.
	SetUnlinkOnClose(unlink bool)
}

// Listen listens on a socket that only the user can connect to. The path must not
// exist. On Unix it is a unix socket with mode 0600. On Windows it is a file with the
// random name of a named pipe, both for the user alone: not all releases of Windows have
// unix sockets, and the path of a pipe may have any length. The error is [ErrLongPath] if
// the path is too long.
//
// On Windows the path may also be the name of a named pipe; see [IsPipe]. The error is
// [fs.ErrExist] if the pipe exists. As long as a connection is open, it does.
func Listen(path string) (Listener, error) { return listenSocket(path) }

// ListenNew listens on a new socket in the directory of [disk.RuntimeDir]. It removes the sockets
// there that killed processes have left under that name.
func ListenNew(name string) (l Listener, path string, err error) {
	dir, err := disk.RuntimeDir()
	if err != nil {
		return nil, "", err
	}
	Leftovers(name + "-*.sock").Remove(dir)
	path = filepath.Join(dir, fmt.Sprintf("%s-%d-%s.sock", name, os.Getpid(), rand.Text()[:6]))
	if l, err = Listen(path); err != nil {
		return nil, "", fmt.Errorf("%w: set POLLUX_RUNTIME_DIR to a short path of a directory you own", err)
	}
	return l, path, nil
}

// IsPipe reports whether a path is the name of a named pipe of this machine, such as
// \\.\pipe\name. All users of the machine share these names. It always returns false on
// systems other than Windows.
func IsPipe(path string) bool { return isPipe(path) }

// ListenPrivate listens where only the user can connect, at a new address: on a
// unix socket in the directory of [disk.RuntimeDir], or on a named pipe on Windows. name becomes
// part of the address. scheme is "unix" or "pipe".
func ListenPrivate(name string) (l net.Listener, scheme, address string, err error) {
	return listenPrivate(name)
}

// DialPrivate connects to an address of [ListenPrivate], of this program or another one. It
// does not check who listens on a unix socket; a pipe must be of this user. The error is
// [errors.ErrUnsupported] for a scheme of another system.
func DialPrivate(ctx context.Context, scheme, address string) (net.Conn, error) {
	switch {
	case scheme == "unix":
		return new(net.Dialer).DialContext(ctx, "unix", address)
	case scheme == "pipe" && IsPipe(address):
		return Dial(ctx, address)
	}
	return nil, errors.ErrUnsupported
}

// IsSocket reports whether a file is a socket of [Listen], served or not. It follows
// no symbolic link. On Windows, where a socket is a regular file, its content decides.
func IsSocket(path string) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != FileType {
		return false, err
	}
	return isSocket(path)
}

// Dial connects to a socket of this user. It fails with [ErrForeign] if
// another user may have put it there: the socket must belong to the user or to root, or
// to the owner of a directory that no other user can write, such as one that was mounted
// into a container.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if IsPipe(path) {
		return dialSocket(ctx, path)
	}
	var info fs.FileInfo
	if target, err := disk.EvalSymlinks(path); err == nil { // otherwise the dial fails too
		if info, err = os.Stat(target); err != nil {
			return nil, err
		}
		dir := filepath.Dir(target)
		dirInfo, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		if !disk.Own(target, info) && !disk.Administered(target, info) &&
			(!disk.SameOwner(target, info, dir, dirInfo) || disk.OthersWrite(dir, dirInfo)) {
			return nil, fmt.Errorf("%s %w", path, ErrForeign)
		}
	}
	conn, err := dialSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	if info != nil && !TrustedPeer(conn, info) {
		conn.Close()
		return nil, fmt.Errorf("%s %w", path, ErrForeign)
	}
	return conn, nil
}

// Leftovers finds the sockets of killed processes whose names match a pattern. It leaves out
// those younger than a second: a new socket refuses connections until its process listens.
func Leftovers(pattern string) disk.Leftovers {
	return disk.Leftovers{Pattern: pattern, Type: FileType, MinAge: time.Second, Abandoned: RefusesConnections}
}

// refuseTimeout limits the dial of [RefusesConnections].
const refuseTimeout = time.Second

// RefusesConnections reports whether no process listens on a socket, in this
// container or another one.
func RefusesConnections(socket string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), refuseTimeout)
	defer cancel()
	conn, err := dialSocket(ctx, socket)
	if err == nil {
		conn.Close()
	}
	return err != nil && Refused(err)
}
