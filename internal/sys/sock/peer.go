package sock

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"pollux/internal/sys/disk"
)

// ErrConfined is the error for a program that is not served because of [ConfinedPeer].
var ErrConfined = errors.New("this program runs with no_new_privs, as asked agents do, and is not served: start it outside of that sandbox")

// ConfinedPeer reports whether the process at the other end of a unix socket is behind a wall of the
// kernel, and this process is not. Call it when the connection has just been accepted: later, another
// process may have the PID. A process in another PID namespace, such as a container, counts as not
// confined. It always reports false on systems other than Linux.
func ConfinedPeer(conn net.Conn) bool {
	peer, ok := PeerOf(conn)
	return ok && peer.PID != 0 && confined(peer.PID)
}

// TrustedPeer reports whether the process that listens at the other end of a
// unix socket runs as this user, as root, or as the owner of the socket file. It
// always returns true on systems other than Linux and macOS, which cannot tell.
func TrustedPeer(conn net.Conn, socket fs.FileInfo) bool {
	peer, ok := PeerOf(conn)
	if !ok {
		return !knowsUsers
	}
	return peer.UID == os.Getuid() || peer.UID == 0 || disk.OwnedBy(socket, peer.UID)
}

// PeerProcess returns the process of this user that has the other end of a TCP
// connection on this machine, given the connection's address at this end and that of
// the other end. It returns 0 if no such process is here, for instance because it
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

// PeerUser returns the user whose process has the other end of a TCP connection on this
// machine, given the connection's address at this end and that of the other end. It
// reports false if no process here has it, for instance because it is on another machine
// or has closed it, if the user has no number in this user namespace, and always unless
// [KnowsPeers]. It reads a table of all sockets, which takes 10 ms for each thousand of them.
func PeerUser(local, remote net.Addr) (uid int, ok bool) {
	here, isTCP := local.(*net.TCPAddr)
	there, alsoTCP := remote.(*net.TCPAddr)
	if !isTCP || !alsoTCP {
		return 0, false
	}
	return peerUser(here.AddrPort(), there.AddrPort())
}

// SeesSocket reports whether the system shows this process the user of a TCP socket that
// listens on an IPv4 address, as [PeerUser] needs. Some sandboxes hide it.
func SeesSocket(l net.Listener) bool {
	none := &net.TCPAddr{IP: net.IPv4zero}
	uid, ok := PeerUser(none, l.Addr())
	return ok && uid == os.Getuid()
}

// KnowsPeers is true where [PeerProcess] and [PeerUser] work: on Linux.
const KnowsPeers = knowsPeers
