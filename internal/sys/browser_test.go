package sys

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestBrowser(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("another command opens the browser")
	}
	const url = "http://127.0.0.1:1/review/#A"
	bin := t.TempDir()
	for _, name := range []string{"xdg-open", "firefox", "w3m", "helper.sh"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	for name, tt := range map[string]struct {
		browser, display, wayland, ssh string
		want                           string // the arguments; none if empty
	}{
		"a desktop":                 {display: ":0", want: "xdg-open " + url},
		"wayland":                   {wayland: "wayland-0", want: "xdg-open " + url},
		"no screen":                 {},
		"ssh, with its X11":         {display: ":10", ssh: "x"},
		"a command":                 {browser: "firefox", want: "firefox " + url},
		"a command's arguments":     {browser: "firefox --new-tab %s -x", want: "firefox --new-tab " + url + " -x"},
		"the first installed one":   {browser: "chromium:firefox", want: "firefox " + url},
		"of an editor, over ssh":    {browser: filepath.Join(bin, "helper.sh"), ssh: "x", want: filepath.Join(bin, "helper.sh") + " " + url},
		"not in the terminal":       {browser: "w3m", display: ":0", want: "xdg-open " + url},
		"only in the terminal":      {browser: "w3m"},
		"not installed, no screen":  {browser: "chromium"},
		"not installed, a desktop":  {browser: "chromium", display: ":0", want: "xdg-open " + url},
		"an empty part":             {browser: "::", display: ":0", want: "xdg-open " + url},
		"the URL inside of another": {browser: "firefox x=%s", want: "firefox x=" + url},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BROWSER", tt.browser)
			t.Setenv("DISPLAY", tt.display)
			t.Setenv("WAYLAND_DISPLAY", tt.wayland)
			t.Setenv("SSH_CONNECTION", tt.ssh)
			var got []string
			if cmd := browser(url); cmd != nil {
				got = cmd.Args
			}
			if !slices.Equal(got, strings.Fields(tt.want)) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A command that fails opened nothing.
func TestBrowse(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	file := filepath.Join(t.TempDir(), "url")
	script := filepath.Join(t.TempDir(), "browser")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nprintf %s \"$1\" >"+file+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("SSH_CONNECTION", "x")
	t.Setenv("BROWSER", "")
	if err := Browse("http://x/#1"); !errors.Is(err, ErrNoBrowser) {
		t.Errorf("without a browser: %v", err)
	}
	wait := func(command string) error {
		t.Setenv("BROWSER", command)
		cmd := browser("http://x/#1")
		if cmd == nil {
			t.Fatalf("%s is no command", command)
		}
		return browse(cmd, nil)
	}
	if err := wait("false"); err == nil {
		t.Error("a command that fails counts as successful")
	}
	if err := wait(script); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "http://x/#1" {
		t.Errorf("the browser received %q, %v", got, err)
	}
}
