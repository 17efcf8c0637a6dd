package proc

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"
)

// The layouts of what the kernel of macOS returns, on all architectures that Go supports.
// This file has no build tag, so that its tests run on every system.

// A procArgs is the result of sysctl kern.procargs2: how a process was started.
type procArgs struct {
	path    string // of the executable
	args    []string
	environ []string // none for Apple's own programs
}

// parseProcArgs parses the result of kern.procargs2: the number of arguments in 32 bits,
// the path of the executable, NULs up to a multiple of the word size, the arguments, the
// environment and other strings. A NUL ends each string, and an empty string ends the
// environment. ok is false if an argument is missing.
func parseProcArgs(data []byte) (p procArgs, ok bool) {
	if len(data) < 4 {
		return p, false
	}
	count := int64(int32(binary.LittleEndian.Uint32(data)))
	path, rest, found := bytes.Cut(data[4:], []byte{0})
	if !found || count < 0 {
		return p, false
	}
	p.path = string(path)
	rest = bytes.TrimLeft(rest, "\x00")
	next := func() (s string, found bool) {
		text, after, found := bytes.Cut(rest, []byte{0})
		rest = after
		return string(text), found
	}
	for range count {
		arg, found := next()
		if !found {
			return p, false
		}
		p.args = append(p.args, arg)
	}
	for {
		variable, found := next()
		if !found || variable == "" {
			return p, true
		}
		p.environ = append(p.environ, variable)
	}
}

// name returns the [Process.Name], or another one if the arguments are empty.
func (p procArgs) name(other string) string {
	// ps joins the arguments with spaces, and readers split at the first space.
	words := strings.Fields(strings.Join(p.args, " "))
	if len(words) == 0 {
		return other
	}
	return filepath.Base(words[0])
}

// cString returns the text before the first NUL.
func cString(data []byte) string {
	text, _, _ := bytes.Cut(data, []byte{0})
	return string(text)
}

// Layouts in Apple's <sys/proc_info.h>, in bytes.
const (
	taskInfoSize   = 96  // of struct proc_taskinfo
	residentOffset = 8   // of pti_resident_size
	vnodeInfoSize  = 152 // of struct vnode_info, before the path
	maxPathLen     = 1024
	vnodePathSize  = 2 * (vnodeInfoSize + maxPathLen) // of struct proc_vnodepathinfo
)

// residentSize returns the resident memory in a struct proc_taskinfo, in bytes.
func residentSize(info []byte) int64 {
	if len(info) < taskInfoSize {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(info[residentOffset:]))
}

// currentDir returns the working directory in a struct proc_vnodepathinfo, or "".
func currentDir(info []byte) string {
	if len(info) < vnodePathSize {
		return ""
	}
	dir := cString(info[vnodeInfoSize : vnodeInfoSize+maxPathLen])
	if !strings.HasPrefix(dir, "/") {
		return ""
	}
	return dir
}
