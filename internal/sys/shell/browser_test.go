package shell

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

func TestBrowser(t *testing.T) {
	const url = "http://127.0.0.1:1/review/#A"
	bin := filepath.Join(t.TempDir(), "bin")
	exe := map[bool]string{true: ".exe"}[runtime.GOOS == "windows"]
	systest.MakeDir(t, bin)
	for _, name := range []string{"xdg-open", "firefox", "w3m", "helper"} {
		if err := os.WriteFile(filepath.Join(bin, name+exe), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	const screen = "of the system"
	system := map[string][]string{
		"linux": {"xdg-open", url}, "darwin": {"open", url}, "windows": {"rundll32", "url.dll,FileProtocolHandler", url},
	}[runtime.GOOS]
	helper := filepath.Join(bin, "helper"+exe)
	list := func(commands ...string) string { return strings.Join(commands, string(os.PathListSeparator)) }
	for name, tt := range map[string]struct {
		browser, display, wayland, ssh string
		want                           []string // the arguments; none if empty, of the system if it is screen
	}{
		"a desktop":                 {display: ":0", want: []string{screen}},
		"wayland":                   {wayland: "wayland-0", want: []string{screen}},
		"no screen":                 {},
		"ssh":                       {ssh: "x"},
		"ssh, with its X11":         {display: ":10", ssh: "x"},
		"a command":                 {browser: "firefox", want: []string{"firefox", url}},
		"a command's arguments":     {browser: "firefox --new-tab %s -x", want: []string{"firefox", "--new-tab", url, "-x"}},
		"the first installed one":   {browser: list("chromium", "firefox"), want: []string{"firefox", url}},
		"of an editor, over ssh":    {browser: helper, ssh: "x", want: []string{helper, url}},
		"not in the terminal":       {browser: "w3m", display: ":0", want: []string{screen}},
		"only in the terminal":      {browser: "w3m"},
		"not installed, no screen":  {browser: "chromium"},
		"not installed, a desktop":  {browser: "chromium", display: ":0", want: []string{screen}},
		"an empty part":             {browser: list("", "", ""), display: ":0", want: []string{screen}},
		"the URL inside of another": {browser: "firefox x=%s", want: []string{"firefox", "x=" + url}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BROWSER", tt.browser)
			t.Setenv("DISPLAY", tt.display)
			t.Setenv("WAYLAND_DISPLAY", tt.wayland)
			t.Setenv("SSH_CONNECTION", tt.ssh)
			want := tt.want
			// Other systems always have a screen.
			if slices.Equal(want, []string{screen}) || want == nil && tt.ssh == "" && runtime.GOOS != "linux" {
				want = system
			}
			var got []string
			if cmd := browser(url); cmd != nil {
				got = cmd.Args
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// A command that fails opened nothing.
func TestBrowse(t *testing.T) {
	const url = "http://x/?a=b&c=%PATH%#1"
	self := systest.Self(t)
	dir := filepath.Join(t.TempDir(), "dir")
	if runtime.GOOS == "windows" { // paths of programs have spaces there
		dir = filepath.Join(t.TempDir(), "Program Files & x")
	}
	systest.MakeDir(t, dir)
	file, script := filepath.Join(dir, "url"), filepath.Join(dir, "browser")
	text := "#!/bin/sh\nexec '" + self + "' \"$@\"\n"
	if runtime.GOOS == "windows" {
		script += ".cmd"
		text = "@\"" + self + "\" %*\r\n"
	}
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("SSH_CONNECTION", "x")
	t.Setenv("BROWSER", "")
	if err := Browse(url); !errors.Is(err, ErrNoBrowser) {
		t.Errorf("without a browser: %v", err)
	}
	t.Setenv("SYS_TEST_OPENED", file)
	for _, tt := range []struct {
		command, program string
		arguments        string // their number
	}{
		{command: script, program: "fail"},
		{command: script, program: "browser", arguments: "1"},
		{command: script + " --new-tab %s", program: "browser", arguments: "2"},
		{command: self, program: "browser", arguments: "1"},
	} {
		os.Remove(file)
		t.Setenv("BROWSER", tt.command)
		t.Setenv(systest.ProgramVar, tt.program)
		t.Setenv("SYS_TEST_ARGUMENTS", tt.arguments)
		cmd := browser(url)
		if cmd == nil {
			t.Fatalf("%s is not a command", tt.command)
		}
		err := browse(cmd, nil)
		got, _ := os.ReadFile(file)
		if fails := tt.program == "fail"; (err != nil) != fails || !fails && string(got) != url {
			t.Errorf("%s: %v, the browser received %q", tt.command, err, got)
		}
	}
}
