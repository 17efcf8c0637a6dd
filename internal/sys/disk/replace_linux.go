package disk

import (
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// shared reports whether a directory was mounted into this container.
func shared(dir string) bool {
	if ns, _ := os.Readlink("/proc/self/ns/pid"); ns == "pid:[4026531836]" { // the host's
		return false
	}
	var here, root syscall.Stat_t
	return syscall.Stat(dir, &here) == nil && syscall.Stat("/", &root) == nil && here.Dev != root.Dev
}

// hasAttributes reports whether a file has extended attributes that a new file
// would lack. SELinux labels every file, a new one like its neighbours.
func hasAttributes(f *os.File) bool {
	buf := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(f.Fd()), buf)
	if err != nil {
		return false
	}
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if name != "" && name != "security.selinux" {
			return true
		}
	}
	return false
}
