package sys

import (
	"slices"
	"testing"
)

// The key `e` and `pollux config edit` ran `sh` on Windows, or a program named C:\Program.
func TestSplitWindows(t *testing.T) {
	installed := []string{"notepad", "code", `C:\Program Files\Notepad++\notepad++.exe`}
	for line, want := range map[string][]string{
		"":                     nil,
		"notepad":              {"notepad"},
		" code  --wait ":       {"code", "--wait"},
		`"C:\a b\x.exe" -n`:    {`C:\a b\x.exe`, "-n"},
		`vim -c "set tw=0"`:    {"vim", "-c", "set tw=0"},
		`vim --cmd=""`:         {"vim", "--cmd="},
		`x ""`:                 {"x", ""},
		`C:\none such\x.exe y`: {`C:\none`, `such\x.exe`, "y"},
		`C:\Program Files\Notepad++\notepad++.exe`:                             {`C:\Program Files\Notepad++\notepad++.exe`},
		`C:\Program Files\Notepad++\notepad++.exe -multiInst "a b" -nosession`: {`C:\Program Files\Notepad++\notepad++.exe`, "-multiInst", "a b", "-nosession"},
	} {
		if got := splitWindows(line, func(p string) bool { return slices.Contains(installed, p) }); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
