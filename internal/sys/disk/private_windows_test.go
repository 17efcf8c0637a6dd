package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/windows"

	"pollux/internal/sys/systest"
)

// foreignDir returns a directory of the Windows installer or, in Wine, of root.
func foreignDir(t *testing.T) string {
	t.Helper()
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil {
		return `Z:\usr`
	}
	return os.Getenv("SystemRoot")
}

// A private file or directory gets its own access control list, which names only the
// user.
func TestOwnerOnlyList(t *testing.T) {
	user, err := CurrentUser()
	if err != nil {
		t.Fatal(err)
	}
	for dir, flags := range map[bool]string{true: "OICI", false: ""} {
		sd, err := ownerOnly(dir)
		if err != nil {
			t.Fatal(err)
		}
		if want := "O:" + user.String() + "D:P(A;" + flags + ";FA;;;" + user.String() + ")"; sd.String() != want {
			t.Errorf("%v: %s, want %s", dir, sd, want)
		}
	}
	path := filepath.Join(t.TempDir(), "f")
	f, err := createPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := systest.Share(path); err != nil {
		t.Fatal(err)
	}
	h, err := openSecurity(path, false, windows.WRITE_DAC)
	if err != nil {
		t.Fatal(err)
	}
	defer windows.CloseHandle(h)
	if err := protect(h, false); err != nil {
		t.Fatal(err)
	}
	sd, err := securityOfHandle(h)
	if err != nil {
		t.Fatal(err)
	}
	if rights := rightsOfOthers(sd, trusted()...); rights != 0 || OwnerIn(sd) != user.String() {
		t.Errorf("others have the rights %#x in %s", rights, sd)
	}
}

// Only entries that allow something to others count.
func TestRightsOfOthers(t *testing.T) {
	user, err := CurrentUser()
	if err != nil {
		t.Fatal(err)
	}
	me := user.String()
	for list, want := range map[string]windows.ACCESS_MASK{
		"D:P(A;OICI;FA;;;" + me + ")":                    0,
		"D:(A;;FA;;;SY)(A;;FA;;;BA)(A;;FA;;;" + me + ")": 0, // the user's own folders
		"D:(A;OICIIO;FA;;;CO)(A;;FA;;;OW)":               0,
		"D:(D;;FA;;;WD)(A;;FA;;;" + me + ")":             0,
		"D:(A;;FA;;;" + me + ")(A;;FR;;;WD)":             windows.FILE_GENERIC_READ,
		"D:(A;;FA;;;" + me + ")(A;;0x1301bf;;;AU)":       0x1301bf,                  // "Modify", as on another drive
		"D:(A;OICIIO;FR;;;BU)":                           windows.FILE_GENERIC_READ, // what is created there
		"D:(A;;FA;;;S-1-5-21-1-2-3-1001)":                windows.ACCESS_MASK(0x1f01ff),
		"O:" + me:                                        allRights,
	} {
		sd, err := windows.SecurityDescriptorFromString(list)
		if err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		if got := rightsOfOthers(sd, trusted()...); got != want {
			t.Errorf("%s: %#x, want %#x", list, got, want)
		}
	}
}

// Windows lets others read a file in a directory that they may not open, if they know its
// name and its own list lets them.
func TestPrivateDirPassesItsListOn(t *testing.T) {
	systest.SkipOnWine(t, "it passes no list on")
	shared := filepath.Join(t.TempDir(), "shared")
	file := filepath.Join(shared, "sub", "f")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := systest.Share(shared); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o777), os.WriteFile(file, nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	isPrivate := func() bool {
		info, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		return Private(file, info)
	}
	if isPrivate() {
		t.Fatal("others cannot read the file at first")
	}
	if err := PrivateDir(shared); err != nil {
		t.Fatal(err)
	}
	if !isPrivate() {
		t.Error("others can still read the file")
	}
}
