package disk

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func diskPath(path string) (string, error) {
	// O_EVTONLY does not keep a volume from being unmounted.
	fd, err := unix.Open(path, unix.O_EVTONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	name := make([]byte, unix.PathMax)
	// The only wrapper of fcntl in x/sys that takes a pointer is made for a smaller struct.
	if err := unix.FcntlFstore(uintptr(fd), unix.F_GETPATH, (*unix.Fstore_t)(unsafe.Pointer(&name[0]))); err != nil {
		return "", &os.PathError{Op: "fcntl", Path: path, Err: err}
	}
	return unix.ByteSliceToString(name), nil
}
