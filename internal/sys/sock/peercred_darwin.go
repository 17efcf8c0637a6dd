package sock

import "golang.org/x/sys/unix"

const knowsUsers = true

// peerOf returns the user that connected or listened, and the process that used the socket
// last: see unix(4) and Apple's <sys/un.h>.
func peerOf(fd int) (Peer, bool) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil || c.Version != xucredVersion {
		return Peer{}, false
	}
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		pid = 0 // the other end is closed
	}
	return Peer{UID: int(c.Uid), PID: pid}, true
}

// xucredVersion is XUCRED_VERSION of Apple's <sys/ucred.h>.
const xucredVersion = 0
