package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

func (d Dir) lstat(name string) (FileState, error) {
	s, ok := d.query(name)
	if ok && s.Mode&windows.FILE_ATTRIBUTE_REPARSE_POINT == 0 {
		return s, nil
	}
	info, err := os.Lstat(filepath.Join(d.file.Name(), filepath.FromSlash(name)))
	if err != nil {
		return FileState{}, err
	}
	s.IsDir, s.Mode, s.Size, s.Modified = info.IsDir(), uint32(info.Mode()), info.Size(), info.ModTime().UnixNano()
	return s, nil
}

// Classes of information about a file (FILE_INFORMATION_CLASS).
const (
	fileInternalInformation    = 6
	fileNetworkOpenInformation = 34
)

// A networkOpenInformation is a FILE_NETWORK_OPEN_INFORMATION.
type networkOpenInformation struct {
	created, accessed, written, changed windows.Filetime
	allocated, size                     int64
	attributes, _                       uint32
}

// query returns the state of a file that can be opened.
func (d Dir) query(name string) (s FileState, ok bool) {
	path, err := windows.NewNTUnicodeString(strings.ReplaceAll(name, "/", `\`))
	if err != nil {
		return s, false
	}
	object := &windows.OBJECT_ATTRIBUTES{
		RootDirectory: windows.Handle(d.file.Fd()), ObjectName: path, Attributes: windows.OBJ_CASE_INSENSITIVE,
	}
	object.Length = uint32(unsafe.Sizeof(*object))
	var h windows.Handle
	var status windows.IO_STATUS_BLOCK
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	err = windows.NtCreateFile(&h, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, object, &status, nil, 0, share,
		windows.FILE_OPEN, windows.FILE_OPEN_REPARSE_POINT|windows.FILE_OPEN_FOR_BACKUP_INTENT|windows.FILE_SYNCHRONOUS_IO_NONALERT, 0, 0)
	if err != nil {
		return s, false
	}
	defer windows.CloseHandle(h)
	// Other functions return more than is needed here, and take longer.
	var info networkOpenInformation
	var id int64
	err = errors.Join(
		windows.NtQueryInformationFile(h, &status, (*byte)(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), fileNetworkOpenInformation),
		windows.NtQueryInformationFile(h, &status, (*byte)(unsafe.Pointer(&id)), uint32(unsafe.Sizeof(id)), fileInternalInformation))
	if err != nil {
		return s, false
	}
	const mode = windows.FILE_ATTRIBUTE_DIRECTORY | windows.FILE_ATTRIBUTE_READONLY | windows.FILE_ATTRIBUTE_REPARSE_POINT
	return FileState{
		IsDir:    info.attributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0,
		Mode:     info.attributes & mode,
		Size:     info.size,
		Modified: info.written.Nanoseconds(),
		Changed:  info.changed.Nanoseconds(),
		ID:       uint64(id),
	}, true
}
