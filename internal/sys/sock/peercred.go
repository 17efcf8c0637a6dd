package sock

import (
	"net"
	"os"
	"syscall"
)

// A Peer is the process at the other end of a unix socket. PID is 0 if the process
// is not visible here, such as one in another container.
type Peer struct {
	UID int
	PID int
}

// PeerOf returns the process at the other end of a unix socket, as it was when the
// connection began. On macOS the process is the one that used that end last, and 0 once
// that end is closed. On Windows it returns the process at the other end of a named pipe,
// and this user, since [Listen] and [Dial] refuse others. PeerOf reports false
// on other systems, which cannot tell.
func PeerOf(conn net.Conn) (p Peer, ok bool) {
	if pid, ok := pipePeer(conn); ok {
		return Peer{UID: os.Getuid(), PID: pid}, true
	}
	sc, isSocket := conn.(syscall.Conn)
	if !isSocket {
		return p, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return p, false
	}
	err = raw.Control(func(fd uintptr) { p, ok = peerOf(int(fd)) })
	return p, ok && err == nil
}
