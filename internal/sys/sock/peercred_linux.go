package sock

import "syscall"

const knowsUsers = true

func peerOf(fd int) (Peer, bool) {
	c, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return Peer{}, false
	}
	return Peer{UID: int(c.Uid), PID: int(c.Pid)}, true
}
