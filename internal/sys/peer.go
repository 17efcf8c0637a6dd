package sys

import (
	"io/fs"
	"net"
)

// TrustedPeer reports whether the process that listens at the other end of a
// unix socket runs as this user, as root, or as the owner of the socket file. It
// always returns true on systems other than Linux, which cannot tell.
func TrustedPeer(conn net.Conn, socket fs.FileInfo) bool { return trustedPeer(conn, socket) }

// PeerProcess returns the process of this user that has the other end of a TCP
// connection on this machine, given the connection's addresses at this end. It
// returns 0 if there is none, if the process is in another namespace, and on
// systems other than Linux. It reads the file tables of processes, which takes
// some milliseconds.
func PeerProcess(local, remote net.Addr) int {
	here, ok := local.(*net.TCPAddr)
	there, ok2 := remote.(*net.TCPAddr)
	if !ok || !ok2 {
		return 0
	}
	return peerProcess(here.AddrPort(), there.AddrPort())
}
