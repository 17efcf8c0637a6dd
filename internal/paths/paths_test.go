package paths

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// On macOS a workspace opened as /Work did not contain the files in /work.
func TestRel(t *testing.T) {
	for _, test := range []struct {
		root, path string
		foldCase   bool
		want       string // "" if root does not contain path
	}{
		{"/work", "/work", false, "."},
		{"/work", "/work/a/b", false, "a/b"},
		{"/work/", "/work//a/./b/", false, "a/b"},
		{"/", "/work", false, "work"},
		{"/", "/", false, "."},
		{"/work", "/", false, ""},
		{"/work", "/workshop", false, ""},
		{"/work", "/work/..a", false, "..a"},
		{"/work", "/work/../etc", false, ""},
		{"/work", "/work/a/../b", false, "b"},
		{"/work", "/../work/b", false, "b"},
		{"/work", "/other/work", false, ""},
		{"/work", "work", false, ""},
		{"/work", "../work", false, ""},
		{"/work", "/Work/a", false, ""},
		{"/work", "/Work/A", true, "A"},
		{"/Work/A", "/work/a", true, "."},
		{"/ÄRGER", "/ärger/x", true, "x"},
		{"/A\u0308RGER", "/\u00e4rger/O\u0308", true, "O\u0308"}, // in path's own spelling
		{"/\u00c4", "/A\u0308/x", false, ""},
		{"/I\u0307", "/\u0130/x", true, "x"}, // whose small letter is two characters
		{"/work", "/Workshop", true, ""},
		{"/works", "/work\u017F/a", true, ""}, // a folding comparison takes it for an s
	} {
		got, ok := style{"/", test.foldCase, test.foldCase}.rel(test.root, test.path)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("rel(%s, %s, %v) = %q, %v, want %q", test.root, test.path, test.foldCase, got, ok, test.want)
		}
	}
}

// On Windows an editor or a setting may write slashes.
func TestRelOnWindows(t *testing.T) {
	for _, test := range []struct{ root, path, want string }{
		{`C:\work`, `C:\work\a\b`, `a\b`},
		{`C:\work`, `c:/Work/a/b`, `a\b`},
		{`C:/work/`, `C:\work\a`, `a`},
		{`C:/work`, `C:/work`, `.`},
		{`C:/work`, `C:/work/../etc`, ``},
		{`C:/work`, `C:/workshop`, ``},
		{`//host/share`, `\\host\share\a`, `a`},
		{`C:\works`, "C:\\work\u017F\\a", ``},
	} {
		got, ok := windows.rel(test.root, test.path)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("rel(%s, %s) = %q, %v, want %q", test.root, test.path, got, ok, test.want)
		}
	}
}

func TestContains(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]bool{
		dir:                        true,
		filepath.Join(dir, "a"):    true,
		dir + "a":                  false,
		filepath.Dir(dir):          false,
		filepath.Dir(dir) + "/x":   false,
		filepath.Base(dir):         false,
		dir + "/../" + "elsewhere": false,
	} {
		if got := Contains(dir, filepath.FromSlash(path)); got != want {
			t.Errorf("Contains(%s, %s) = %v", dir, path, got)
		}
	}
}

func TestForeign(t *testing.T) {
	for _, test := range []struct{ root, path, want string }{
		{"/home/me/app", "/home/me/app/a/b", "a/b"},
		{"/home/me/app", "/home/me/App/a", ""},
		{`C:\Users\me\app`, `c:\users\ME\app\Src\a.go`, `Src\a.go`},
		{`C:\`, `C:\a`, `a`},
		{`C:\a`, `D:\a`, ``},
		{`\\host\share`, `\\HOST\share\a`, `a`},
		{`\\host\share`, `\host\share\a`, ``},
	} {
		got, ok := Foreign(test.root, test.path)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("Foreign(%s, %s) = %q, %v, want %q", test.root, test.path, got, ok, test.want)
		}
	}
}

func TestIn(t *testing.T) {
	dir := systest.Dir(t)
	for _, name := range []string{"root/sub", "other"} {
		systest.MakeDir(t, filepath.Join(dir, name))
	}
	roots := []string{filepath.Join(dir, "none"), filepath.Join(dir, "root")}
	check := func(t *testing.T, wants map[string]string) {
		t.Helper()
		for path, want := range wants {
			got, ok := In(roots, filepath.Join(dir, path))
			if want != "" {
				want = filepath.Join(dir, want)
			}
			if got != want || ok != (want != "") {
				t.Errorf("In(%s) = %q, %v, want %q", path, got, ok, want)
			}
		}
	}
	check(t, map[string]string{"root/a": "root/a", "root/sub/a": "root/sub/a", "other/a": "", "root/../other/a": ""})
	t.Run("links", func(t *testing.T) {
		for name, to := range map[string]string{"root/out": "../other", "root/in": "sub", "link": "root"} {
			systest.Link(t, to, filepath.Join(dir, name))
		}
		check(t, map[string]string{"root/in/a": "root/in/a", "link/sub/a": "root/sub/a", "root/out/a": ""})
	})
}

func TestReal(t *testing.T) {
	dir := systest.Dir(t)
	systest.MakeDir(t, filepath.Join(dir, "there"))
	check := func(t *testing.T, wants map[string]string) {
		t.Helper()
		for path, want := range wants {
			if got := Real(filepath.Join(dir, path)); got != filepath.Join(dir, want) {
				t.Errorf("Real(%s) = %s", path, got)
			}
		}
	}
	check(t, map[string]string{"there": "there", "there/./x/../y/": "there/y", "none/link": "none/link"})
	t.Run("a link", func(t *testing.T) {
		systest.Link(t, "there", filepath.Join(dir, "link"))
		check(t, map[string]string{"link": "there", "link/new/file": "there/new/file", "none/link": "none/link"})
	})
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	systest.MakeDir(t, filepath.Join(dir, "there"))
	for path, want := range map[string]string{
		"f": "", "there/f": "", "a/f": "a", "a/b/f": "a/b a", "there/a/f": "there/a",
	} {
		var got []string
		for _, d := range Missing(dir, filepath.Join(dir, filepath.FromSlash(path))) {
			rel, _ := Rel(dir, d)
			got = append(got, filepath.ToSlash(rel))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
}

func TestShort(t *testing.T) {
	home := systest.Dir(t)
	check := func(t *testing.T, dir string) {
		t.Helper()
		systest.SetHome(t, dir)
		for path, want := range map[string]string{
			dir:                        "~",
			filepath.Join(dir, "app"):  filepath.Join("~", "app"),
			filepath.Join(home, "app"): filepath.Join("~", "app"),
			dir + "2":                  dir + "2",
			"relative":                 "relative",
		} {
			if got := Short(path); got != want {
				t.Errorf("Short(%q) is %q, want %q", path, got, want)
			}
		}
	}
	check(t, home)
	t.Run("a link", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "home")
		systest.Link(t, home, link)
		check(t, link)
	})
}

func TestLeadsOut(t *testing.T) {
	root := t.TempDir()
	dir, secret := filepath.Join(root, "dir"), filepath.Join(root, "secret")
	for _, path := range []string{secret, filepath.Join(dir, "file")} {
		systest.WriteFile(t, path, "")
	}
	for name, to := range map[string]string{"in": "file", "out": secret, "up": ".."} {
		systest.Link(t, to, filepath.Join(dir, name))
	}
	for name, out := range map[string]bool{"file": false, "none": false, "in": false, "out": true, "up/secret": true, "up/dir/file": false} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		want := ""
		if out {
			want = path
		}
		if got := LeadsOut(dir, filepath.Join(dir, "file"), path); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
