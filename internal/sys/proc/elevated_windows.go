package proc

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// highIntegrity is the integrity level of processes with raised rights.
const highIntegrity = 0x3000 // SECURITY_MANDATORY_HIGH_RID

// elevated goes by the integrity level, which decides whether another process can write to
// what this one makes. IsElevated of the token can also be true at a lower level.
func elevated() bool {
	var label struct {
		windows.Tokenmandatorylabel
		sid [68]byte // SECURITY_MAX_SID_SIZE
	}
	var size uint32
	err := windows.GetTokenInformation(windows.GetCurrentProcessToken(), windows.TokenIntegrityLevel,
		(*byte)(unsafe.Pointer(&label)), uint32(unsafe.Sizeof(label)), &size)
	if err != nil {
		return false
	}
	sid := label.Label.Sid
	return sid.SubAuthority(uint32(sid.SubAuthorityCount())-1) >= highIntegrity
}
