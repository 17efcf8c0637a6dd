package sock

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pollux/internal/sys/disk"
)

const knowsPeers = true

func peerProcess(here, there netip.AddrPort) int {
	s, ok := findSocket(there, here)
	if !ok {
		return 0
	}
	return socketOwner(s.inode)
}

// overflowUID is the number of all users that have none in this user namespace.
const overflowUID = 65534

func peerUser(here, there netip.AddrPort) (uid int, ok bool) {
	s, ok := findSocket(there, here)
	return s.uid, ok && s.uid != overflowUID
}

// A tcpSocket is a TCP socket that a process has open.
type tcpSocket struct {
	inode string
	uid   int // the owner of the process that made it
}

// findSocket returns the socket with these addresses. It looks twice: the tables are no
// snapshots, and a socket can be missing from one while others come and go.
func findSocket(local, remote netip.AddrPort) (s tcpSocket, ok bool) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		if s, ok = socketIn(string(data), local, remote); ok {
			return s, true
		}
	}
	return s, false
}

// socketIn returns the socket with these addresses in a table of the kernel. A socket
// that its process has closed has no inode there, and root as its user.
func socketIn(table string, local, remote netip.AddrPort) (s tcpSocket, ok bool) {
	for line := range strings.Lines(table) {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[9] == "0" {
			continue
		}
		if kernelAddr(fields[1]) == unmapped(local) && kernelAddr(fields[2]) == unmapped(remote) {
			uid, err := strconv.Atoi(fields[7])
			return tcpSocket{fields[9], uid}, err == nil
		}
	}
	return s, false
}

// unmapped returns an address without the IPv6 form of an IPv4 address and without a
// zone, which the kernel's tables do not have.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// kernelAddr parses an address such as 0100007F:1F90: words of 32 bits in the byte
// order of the machine, and the port. The result is not valid for other texts.
func kernelAddr(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, ":")
	ip, err := hex.DecodeString(host)
	number, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(ip)%4 != 0 {
		return netip.AddrPort{}
	}
	for word := ip; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number))
}

// socketOwner returns the first process of this user that has a socket open, or 0.
func socketOwner(inode string) int {
	link := fmt.Sprintf("socket:[%s]", inode)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		if info, err := os.Stat(dir); err != nil || !disk.Own(dir, info) {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue
		}
		for _, f := range files {
			if target, err := os.Readlink(filepath.Join(dir, "fd", f.Name())); err == nil && target == link {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				return pid
			}
		}
	}
	return 0
}

// confined reports whether a process has given up for good the right to gain privileges, as all
// programs behind a wall of the kernel have, and this process has not. It reports true for a
// process about which it can learn nothing. On other systems than Linux it reports false.
func confined(pid int) bool {
	ours, err := noNewPrivileges(os.Getpid())
	if err != nil || ours {
		return false
	}
	theirs, err := noNewPrivileges(pid)
	return err != nil || theirs
}

func noNewPrivileges(pid int) (bool, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n")), err
}
