package disk

import (
	"errors"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// MakeWritable is the command that makes a read-only file writable.
const MakeWritable = "attrib -r"

// bound reports whether a new file in its place would lose something: further hard links,
// encryption, or data streams.
func bound(root *os.Root, name string, _ fs.FileInfo) bool {
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	h := windows.Handle(f.Fd())
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return false
	}
	return info.NumberOfLinks > 1 || info.FileAttributes&windows.FILE_ATTRIBUTE_ENCRYPTED != 0 || hasStreams(h)
}

// fileStreamInformation is the class of information that lists a file's data streams.
const fileStreamInformation = 22

// hasStreams reports whether the file has data streams in addition to its content.
func hasStreams(h windows.Handle) bool {
	// A FILE_STREAM_INFORMATION for each stream. The first is for the content, and says in
	// its first field whether another follows.
	var list [64]uint32
	var status windows.IO_STATUS_BLOCK
	err := windows.NtQueryInformationFile(h, &status, (*byte)(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), fileStreamInformation)
	return errors.Is(err, windows.STATUS_BUFFER_OVERFLOW) || err == nil && list[0] != 0
}

// inUse reports whether an error may mean that another program keeps the file open.
func inUse(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

// OwnedBy returns false: users of Windows have no numbers.
func OwnedBy(fs.FileInfo, int) bool { return false }

func stamp(fs.FileInfo) (changed int64, id uint64) { return 0, 0 }

func shared(string) bool { return false }

// RenameNew renames a file with move, such as [windows.MoveFileEx]. It fails if the new name exists.
func RenameNew(from, to string, move func(from, to *uint16, flags uint32) error) error {
	failed := func(err error) error { return &os.LinkError{Op: "rename", Old: from, New: to, Err: err} }
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return failed(err)
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return failed(err)
	}
	if err := rename(func() error { return move(old, name, 0) }, func() error { return nil }); err != nil {
		return failed(err)
	}
	return nil
}
