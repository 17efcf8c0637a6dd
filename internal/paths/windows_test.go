package paths

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/sys/shell"
)

var windows, unix = style{separator: `\`, foldCase: true}, style{separator: "/"}

// A language client on Windows names a file with its drive, or on a server.
func TestURLs(t *testing.T) {
	for _, test := range []struct {
		system    style
		url, path string // path is "" for a URL that names no file here
		back      string // the URL of the path, if it is another one
	}{
		{unix, "file:///home/me/a%20b", "/home/me/a b", ""},
		{unix, "file://localhost/a", "/a", "file:///a"},
		{unix, "file://server/a", "", ""},
		{unix, "https:///a", "", ""},
		{unix, "file:", "", ""},
		{windows, "file:///C:/Users/me/a%20b", `C:\Users\me\a b`, ""},
		{windows, "file:///c%3A/Users/me", `C:\Users\me`, "file:///C:/Users/me"}, // VS Code
		{windows, "file:///C:", `C:\`, "file:///C:/"},                            // C: alone is the working directory on it
		{windows, "FILE:///c:/x", `C:\x`, "file:///C:/x"},
		{windows, "file://C:/x", `C:\x`, "file:///C:/x"},
		{windows, "file://localhost/C:/x", `C:\x`, "file:///C:/x"},
		{windows, "file://server/share/a%23b", `\\server\share\a#b`, ""},
		{windows, "file:////server/share/x", `\\server\share\x`, "file://server/share/x"},
		{windows, "file://wsl%24/Ubuntu/home", `\\wsl$\Ubuntu\home`, "file://wsl$/Ubuntu/home"}, // VS Code
		{windows, "file://a%2Fb/share", "", ""},
		{windows, "file://a%5Cb/share", "", ""},
		{windows, "file:///home/me", "", ""},
		{windows, "file:///", "", ""},
		{windows, "file://%zz/x", "", ""},
	} {
		path, ok := test.system.fromURL(test.url)
		if path != test.path && ok || ok != (test.path != "") {
			t.Errorf("fromURL(%s) = %q, %v, want %q", test.url, path, ok, test.path)
		}
		want := test.back
		if want == "" {
			want = test.url
		}
		if ok {
			if got := test.system.toURL(path); got != want {
				t.Errorf("toURL(%s) = %s, want %s", path, got, want)
			}
		}
	}
	if got, want := windows.toURL(`\\?\C:\x`), "file:///C:/x"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A path with the prefix for long paths leads to the same file as one without.
func TestPlain(t *testing.T) {
	for path, want := range map[string]string{
		`\\?\C:\x`:             `C:\x`,
		`\\?\UNC\server\share`: `\\server\share`,
		`\\?\unc\server\share`: `\\server\share`,
		`\\?\Volume{1}\x`:      `\\?\Volume{1}\x`,
		`C:\x`:                 `C:\x`,
		`\\server\share`:       `\\server\share`,
		`\\.\pipe\x`:           `\\.\pipe\x`,
	} {
		if got := plain(path); got != want {
			t.Errorf("plain(%s) = %s, want %s", path, got, want)
		}
	}
	if rel, ok := windows.rel(`C:\work`, `\\?\c:\Work\a`); rel != "a" || !ok {
		t.Errorf("%q, %v", rel, ok)
	}
	if rel, ok := windows.rel(`\\?\UNC\host\share`, `\\HOST\share\a`); rel != "a" || !ok {
		t.Errorf("%q, %v", rel, ok)
	}
}

// A look at \\host\share sends the user's credentials there.
func TestOnOtherServer(t *testing.T) {
	roots := []string{`C:\work`, `\\HOST\share\app`}
	for path, want := range map[string]bool{
		`\\evil\share\x`: true, `//evil/share/x`: true, `\\?\UNC\evil\share\x`: true, `\\host\other\x`: true, `\\evil\share`: true,
		`\\host\Share\x`: false, `\\?\unc\host\share\x`: false, `C:\work\x`: false, `D:\x`: false, `\\?\D:\x`: false, `\x`: false,
		`\\.\UNC\evil\share\x`: true, `\??\UNC\evil\share\x`: true, `\\?\GLOBALROOT\Device\Mup\evil\share`: true, `\\.\D:\x`: false,
	} {
		if got := windows.onOtherServer(roots, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if unix.onOtherServer([]string{"/work"}, "//evil/share/x") {
		t.Error("Unix has no such paths")
	}
}

// An agent that proposes a change of NUL, or of a stream, would change something else
// than the file that the user sees.
func TestSpecial(t *testing.T) {
	for path, special := range map[string]bool{
		`C:\work\NUL`: true, `C:\work\nul.txt`: true, `C:\work\con`: true, `C:\work\com1.log`: true, `C:\work\COM¹`: true,
		`C:\aux\x`: true, `C:\work\lpt9`: true, `C:\work\CONIN$`: true, `C:/work/prn `: true, `C:\work\nul .txt`: true,
		`C:\work\a:b`: true, `C:\work\.env::$DATA`: true, `C:\work\.env.`: true, `C:\work\a `: true, `C:\a.\b`: true,
		`C:\work\null`: false, `C:\work\console`: false, `C:\work\com`: false, `C:\work\com10`: false, `C:\work\a.nul`: false,
		`C:\work\.\..\x`: false, `C:\work\.env`: false, `\\?\C:\x`: false, `\\host\share\x`: false, `C:\`: false,
	} {
		if got := windows.special(path); (got != "") != special {
			t.Errorf("special(%s) = %q", path, got)
		}
		if got := unix.special(path); got != "" {
			t.Errorf("on Unix, special(%s) = %q", path, got)
		}
	}
}

// TEMP often has a short name, such as C:\Users\LONGNA~1: both names lead to the same file.
func TestShortNames(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("only Windows has short names")
	}
	dir := filepath.Join(Real(t.TempDir()), "a long name of a directory")
	file := filepath.Join(dir, "a long name of a file.txt")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	out, err := shell.Command(`for %I in ("` + file + `") do @echo %~sI`).Output()
	if err != nil {
		t.Fatal(err)
	}
	short := strings.TrimSpace(string(out))
	if !strings.Contains(filepath.Base(filepath.Dir(short)), "~") {
		t.Skipf("this disk has no short names: %s", short)
	}
	if got := Real(short); got != file {
		t.Errorf("Real(%q) = %q", short, got)
	}
	if got, err := Existing(short); err != nil || got != file {
		t.Errorf("Existing(%q) = %q, %v", short, got, err)
	}
	if got, want := Real(filepath.Join(filepath.Dir(short), "new")), filepath.Join(dir, "new"); got != want {
		t.Errorf("a new file is %q, want %q", got, want)
	}
	if name, ok := In([]string{dir}, short); name != file || !ok {
		t.Errorf("In(%q) = %q, %v", short, name, ok)
	}
}
