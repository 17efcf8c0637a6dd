package sys

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func freeProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range filePages(string(smaps), program) {
		unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// A mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// filePages returns the mappings of a file in /proc/PID/smaps whose pages all equal the
// file's: the process cannot write to them, and neither the loader nor a debugger has.
func filePages(smaps, file string) (found []mapping) {
	var m mapping
	reads := false
	for line := range strings.Lines(smaps) {
		// 00400000-00c5f000 r-xp 00000000 fe:00 11838711    /usr/bin/pollux
		// Anonymous:             0 kB
		fields := strings.Fields(line)
		from, to, isRange := strings.Cut(fields[0], "-")
		switch {
		case isRange:
			start, err1 := strconv.ParseUint(from, 16, 64)
			end, err2 := strconv.ParseUint(to, 16, 64)
			m = mapping{uintptr(start), uintptr(end)}
			reads = err1 == nil && err2 == nil && len(fields) >= 6 && strings.HasPrefix(fields[1], "r-") &&
				strings.HasSuffix(line, " "+file+"\n")
		case reads && fields[0] == "Anonymous:" && fields[1] == "0":
			found = append(found, m)
		}
	}
	return found
}
