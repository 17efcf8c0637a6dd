package sys

import (
	"io/fs"
	"net"
	"os"
	"syscall"
)

func trustedPeer(conn net.Conn, socket fs.FileInfo) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var peer *syscall.Ucred
	if err := raw.Control(func(fd uintptr) {
		peer, _ = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || peer == nil {
		return false
	}
	st, ok := socket.Sys().(*syscall.Stat_t)
	return int(peer.Uid) == os.Getuid() || peer.Uid == 0 || ok && peer.Uid == st.Uid
}
