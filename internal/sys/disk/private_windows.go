package disk

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Identifiers of groups and accounts that are the same on each Windows.
const (
	sidCreatorOwner   = "S-1-3-0" // stands for the user who creates a file
	sidOwnerRights    = "S-1-3-4" // stands for the file's owner
	sidSystem         = "S-1-5-18"
	sidAdministrators = "S-1-5-32-544"
	sidInstaller      = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
)

// CurrentUser returns the SID of this process's user.
func CurrentUser() (*windows.SID, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, err
	}
	return user.User.Sid, nil
}

// ownerOnly returns a security descriptor that gives all rights to the user and none to other
// users. Files and directories inside such a directory inherit it.
func ownerOnly(dir bool) (*windows.SECURITY_DESCRIPTOR, error) {
	user, err := CurrentUser()
	if err != nil {
		return nil, err
	}
	inherit := ""
	if dir {
		inherit = "OICI"
	}
	return windows.SecurityDescriptorFromString("O:" + user.String() + "D:P(A;" + inherit + ";FA;;;" + user.String() + ")")
}

func ownerOnlyAttributes(dir bool) (*windows.SecurityAttributes, error) {
	sd, err := ownerOnly(dir)
	if err != nil {
		return nil, err
	}
	return &windows.SecurityAttributes{Length: uint32(unsafe.Sizeof(windows.SecurityAttributes{})), SecurityDescriptor: sd}, nil
}

// openSecurity opens a file to read its security descriptor, with further rights. It does not
// follow a link if follow is not set.
func openSecurity(path string, follow bool, rights uint32) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	access := windows.READ_CONTROL | windows.FILE_READ_ATTRIBUTES | rights
	flags := uint32(windows.FILE_FLAG_BACKUP_SEMANTICS) // needed for directories
	if !follow {
		flags |= windows.FILE_FLAG_OPEN_REPARSE_POINT
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	h, err := windows.CreateFile(name, access, share, nil, windows.OPEN_EXISTING, flags, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return h, nil
}

// followed reports whether the state is that of a file that opens as such.
func followed(info fs.FileInfo) bool { return info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) == 0 }

// securityOf returns a file's owner and access control list.
func securityOf(path string, info fs.FileInfo) (*windows.SECURITY_DESCRIPTOR, error) {
	h, err := openSecurity(path, followed(info), 0)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(h)
	return securityOfHandle(h)
}

func securityOfHandle(h windows.Handle) (*windows.SECURITY_DESCRIPTOR, error) {
	return windows.GetSecurityInfo(h, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
}

// ownerOf returns the SID of a file's owner as a text, or "" if it is not known.
func ownerOf(path string, info fs.FileInfo) string {
	sd, err := securityOf(path, info)
	if err != nil {
		return ""
	}
	return OwnerIn(sd)
}

// OwnerIn returns the SID of the owner in a security descriptor, or "" if it has none.
func OwnerIn(sd *windows.SECURITY_DESCRIPTOR) string {
	owner, _, err := sd.Owner()
	if err != nil || owner == nil {
		return ""
	}
	return owner.String()
}

func own(path string, info fs.FileInfo) bool { return IsOwn(ownerOf(path, info)) }

// IsOwn reports whether the owner counts as the user; see [Own].
func IsOwn(owner string) bool {
	user, err := CurrentUser()
	return err == nil && (owner == user.String() || owner == sidSystem || owner == sidAdministrators)
}

func sameOwner(path string, info fs.FileInfo, other string, otherInfo fs.FileInfo) bool {
	owner := ownerOf(path, info)
	return owner != "" && owner == ownerOf(other, otherInfo)
}

// administered trusts whom Gemini CLI trusts with its system-wide settings, which is not
// the user.
func administered(path string, info fs.FileInfo) bool {
	sd, err := securityOf(path, info)
	if err != nil {
		return false
	}
	owner := OwnerIn(sd)
	if owner != sidSystem && owner != sidAdministrators && owner != sidInstaller {
		return false
	}
	return rightsOfOthers(sd, sidSystem, sidAdministrators, sidInstaller, sidCreatorOwner)&writeRights == 0
}

// writeRights are the rights to change a file, or a directory's entries.
const writeRights = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | windows.FILE_WRITE_EA | windows.FILE_WRITE_ATTRIBUTES |
	fileDeleteChild | windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER | windows.GENERIC_WRITE | windows.GENERIC_ALL

const (
	fileDeleteChild = 0x40
	allRights       = windows.ACCESS_MASK(0xffffffff)
)

// trusted returns the SIDs that are not other users.
func trusted() []string {
	user, err := CurrentUser()
	if err != nil {
		return nil
	}
	return []string{user.String(), sidSystem, sidAdministrators, sidCreatorOwner, sidOwnerRights}
}

func private(path string, info fs.FileInfo) bool {
	sd, err := securityOf(path, info)
	return err == nil && rightsOfOthers(sd, trusted()...) == 0
}

func othersWrite(path string, info fs.FileInfo) bool {
	sd, err := securityOf(path, info)
	return err != nil || rightsOfOthers(sd, trusted()...)&writeRights != 0
}

// rightsOfOthers returns the rights that an access control list gives to others than the
// trusted SIDs, to the file or to what is created in it.
// It ignores entries that deny something, so the result may be too much.
func rightsOfOthers(sd *windows.SECURITY_DESCRIPTOR, trusted ...string) (rights windows.ACCESS_MASK) {
	list, _, err := sd.DACL()
	if err != nil || list == nil { // without a list, all users have all rights
		return allRights
	}
	for i := range uint32(list.AceCount) {
		var entry *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &entry); err != nil {
			return allRights
		}
		const denyObject, denyCallback, denyCallbackObject = 6, 10, 12
		switch entry.Header.AceType {
		case windows.ACCESS_ALLOWED_ACE_TYPE:
			if !slices.Contains(trusted, (*windows.SID)(unsafe.Pointer(&entry.SidStart)).String()) {
				rights |= entry.Mask
			}
		case windows.ACCESS_DENIED_ACE_TYPE, denyObject, denyCallback, denyCallbackObject:
		default:
			rights |= entry.Mask
		}
	}
	return rights
}

// protect gives a file that is open with WRITE_DAC a list that names the user alone.
// The system passes a directory's list on to what is in it.
func protect(h windows.Handle, dir bool) error {
	sd, err := ownerOnly(dir)
	if err != nil {
		return err
	}
	list, _, err := sd.DACL()
	if err != nil {
		return err
	}
	const what = windows.DACL_SECURITY_INFORMATION | windows.PROTECTED_DACL_SECURITY_INFORMATION
	if dir { // this call also changes what inherits from it
		if err := windows.SetSecurityInfo(h, windows.SE_FILE_OBJECT, what, nil, nil, list, nil); err != nil {
			return err
		}
	}
	// In Wine the call above keeps what a directory inherits.
	return windows.SetKernelObjectSecurity(h, what, sd)
}

// openToProtect opens a file for [protect], without following a link. It opens a directory
// with the right to list it if it can: whether SetSecurityInfo passes a list on depends on the
// rights of the handle, and Microsoft does not document which it needs.
func openToProtect(path string) (windows.Handle, error) {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		h, err := openSecurity(path, false, windows.WRITE_DAC|windows.FILE_LIST_DIRECTORY|windows.SYNCHRONIZE)
		if err == nil {
			return h, nil
		}
	}
	return openSecurity(path, false, windows.WRITE_DAC)
}

// protectPath is [protect] for a file of the user. It does not follow a link. With
// ifShared it leaves a file alone that is private already.
func protectPath(path string, ifShared bool) error {
	h, err := openToProtect(path)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	failed := func(err error) error { return &fs.PathError{Op: "protect", Path: path, Err: err} }
	// The handle is checked, since another file may have taken the path.
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return failed(err)
	}
	sd, err := securityOfHandle(h)
	if err != nil {
		return failed(err)
	}
	switch {
	case !IsOwn(OwnerIn(sd)):
		return failed(ErrForeign)
	case ifShared && rightsOfOthers(sd, trusted()...) == 0:
		return nil
	}
	if err := protect(h, info.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0); err != nil {
		return failed(err)
	}
	return nil
}

func narrow(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "protect", Path: path, Err: fs.ErrPermission}
	}
	return protectPath(path, true)
}

func denyWrites(path string, _ fs.FileInfo) error { return protectPath(path, true) }

func makePrivate(dir string, _ fs.FileInfo) error { return protectPath(dir, true) }

// mkdirAllPrivate is [os.MkdirAll] with directories that the user alone can read.
func mkdirAllPrivate(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errNotDir}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if up := filepath.Dir(dir); up != dir {
		if err := mkdirAllPrivate(up); err != nil {
			return err
		}
	}
	if err := mkdirPrivate(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func mkdirPrivate(dir string) error {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	attributes, err := ownerOnlyAttributes(true)
	if err == nil {
		err = windows.CreateDirectory(name, attributes)
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

func mkdirTemp(dir, pattern string) (string, error) {
	prefix, suffix := pattern, ""
	if i := strings.LastIndexByte(pattern, '*'); i >= 0 {
		prefix, suffix = pattern[:i], pattern[i+1:]
	}
	path := filepath.Join(dir, prefix+rand.Text()[:10]+suffix)
	return path, mkdirPrivate(path)
}

func createPrivate(path string) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	attributes, err := ownerOnlyAttributes(false)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, share, attributes,
		windows.CREATE_NEW, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// privateTemp makes a new file private before it has content.
func privateTemp(path string) error { return protectPath(path, false) }

// keepOwner gives the file temp the owner, the access control list and the attributes of
// the file that it will replace.
func keepOwner(_ *os.File, temp, replaced string, info fs.FileInfo) error {
	was, err := securityOf(replaced, info)
	if err != nil {
		return err
	}
	control, _, err := was.Control()
	if err != nil {
		return err
	}
	h, err := openSecurity(temp, false, windows.WRITE_DAC)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	is, err := securityOfHandle(h)
	if err != nil {
		return err
	}
	if OwnerIn(is) != OwnerIn(was) {
		return errOwner
	}
	what := windows.SECURITY_INFORMATION(windows.DACL_SECURITY_INFORMATION | windows.UNPROTECTED_DACL_SECURITY_INFORMATION)
	if control&windows.SE_DACL_PROTECTED != 0 {
		what = windows.DACL_SECURITY_INFORMATION | windows.PROTECTED_DACL_SECURITY_INFORMATION
	}
	if err := windows.SetKernelObjectSecurity(h, what, was); err != nil {
		return err
	}
	return hide(temp, info)
}

// hide hides a file if the file of info is hidden.
func hide(path string, info fs.FileInfo) error {
	data, ok := info.Sys().(*syscall.Win32FileAttributeData)
	if !ok {
		return nil
	}
	attributes := data.FileAttributes & (windows.FILE_ATTRIBUTE_HIDDEN | windows.FILE_ATTRIBUTE_SYSTEM)
	if attributes == 0 {
		return nil
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	return windows.SetFileAttributes(name, attributes)
}
