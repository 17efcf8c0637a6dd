package sys

import (
	"io/fs"
	"net"
)

// TrustedPeer reports whether the process that listens at the other end of a
// unix socket is the user's, root's, or that of the owner of the socket's file.
// Where the system cannot tell (it can on Linux) it is true.
func TrustedPeer(conn net.Conn, socket fs.FileInfo) bool { return trustedPeer(conn, socket) }
