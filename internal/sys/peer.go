package sys

import (
	"io/fs"
	"net"
	"net/netip"
	"os"
)

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

// KnowsPeers is true where [PeerProcess] works: on Linux.
const KnowsPeers = knowsPeers
