package sys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
)

// ErrForeignSocket reports that a socket belongs to another user.
var ErrForeignSocket = errors.New("belongs to another user: use a socket in a directory that you own")

// DialUnix connects to a unix socket of this user. It fails with [ErrForeignSocket] if
// another user may have put it there: the socket must belong to the user or to root, or
// to the owner of a directory that nobody else can write, such as one that was mounted
// into a container.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	var info fs.FileInfo
	if target, err := filepath.EvalSymlinks(path); err == nil { // otherwise the dial fails too
		if info, err = os.Stat(target); err != nil {
			return nil, err
		}
		dir, err := os.Stat(filepath.Dir(target))
		if err != nil {
			return nil, err
		}
		if !Own(info) && !Administered(info) && (!SameOwner(info, dir) || dir.Mode().Perm()&0o022 != 0) {
			return nil, fmt.Errorf("%s %w", path, ErrForeignSocket)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if info != nil && !TrustedPeer(conn, info) {
		conn.Close()
		return nil, fmt.Errorf("%s %w", path, ErrForeignSocket)
	}
	return conn, nil
}

// TrustedPeer reports whether the process that listens at the other end of a
// unix socket runs as this user, as root, or as the owner of the socket file. It
// always returns true on systems other than Linux and macOS, which cannot tell.
func TrustedPeer(conn net.Conn, socket fs.FileInfo) bool {
	peer, ok := PeerOf(conn)
	if !ok {
		return !knowsUsers
	}
	return peer.UID == os.Getuid() || peer.UID == 0 || ownedBy(socket, peer.UID)
}

// PeerProcess returns the process of this user that has the other end of a TCP
// connection on this machine, given the connection's address at this end and that of
// the other end. It returns 0 if there is no such process here, for instance because it
// is in another container, and always unless [KnowsPeers]. It reads the file tables of
// processes, which takes some milliseconds.
func PeerProcess(local net.Addr, remote string) int {
	here, ok := local.(*net.TCPAddr)
	there, err := netip.ParseAddrPort(remote)
	if !ok || err != nil {
		return 0
	}
	return peerProcess(here.AddrPort(), there)
}

// KnowsPeers is set on systems on which [PeerProcess] works: on Linux.
const KnowsPeers = knowsPeers
