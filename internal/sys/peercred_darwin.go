package sys

import "golang.org/x/sys/unix"

func peerOf(fd int) (Peer, bool) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Peer{}, false
	}
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		pid = 0
	}
	return Peer{UID: int(c.Uid), PID: pid}, true
}
