package systest

import (
	"testing"

	"golang.org/x/sys/windows"
)

// Unreadable makes a file one that this process cannot read until the test ends: it is
// open, and not shared.
func Unreadable(t testing.TB, path string) {
	t.Helper()
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	const alone = 0
	h, err := windows.CreateFile(name, windows.GENERIC_READ, alone, nil, windows.OPEN_EXISTING, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { windows.CloseHandle(h) })
}
