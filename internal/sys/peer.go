package sys

import (
	"io/fs"
	"net"
)

// TrustedPeer reports whether the process that listens at the other end of a
// unix socket runs as this user, as root, or as the owner of the socket file. It
// always returns true on systems other than Linux, which cannot tell.
func TrustedPeer(conn net.Conn, socket fs.FileInfo) bool { return trustedPeer(conn, socket) }
