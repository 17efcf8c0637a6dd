package sys

import (
	"io/fs"
	"net"
	"os"
	"syscall"
)

func trustedPeer(conn net.Conn, socket fs.FileInfo) bool {
	peer, ok := PeerOf(conn)
	if !ok {
		return false
	}
	st, ok := socket.Sys().(*syscall.Stat_t)
	return peer.UID == os.Getuid() || peer.UID == 0 || ok && peer.UID == int(st.Uid)
}
