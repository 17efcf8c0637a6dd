package proc

import (
	"testing"

	"golang.org/x/sys/windows"

	"pollux/internal/sys/systest"
)

// Files that OneDrive keeps look like others to this process.
func TestPrepareProcess(t *testing.T) {
	systest.SkipOnWine(t, "it has no such files, and always says 0")
	PrepareProcess()
	mode := windows.NewLazySystemDLL("ntdll.dll").NewProc("RtlQueryProcessPlaceholderCompatibilityMode")
	if got, _, _ := mode.Call(); got != 1 {
		t.Errorf("the mode is %d, want 1, to disguise them", got)
	}
}
