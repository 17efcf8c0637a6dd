package cli

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/creack/pty"
)

// In a terminal a link is a hyperlink. Elsewhere it is plain text. Neither lets the other
// side control the terminal.
func TestShownURL(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no pty")
	}
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer terminal.Close()
	const url = "http://127.0.0.1:1/review/#A"
	t.Setenv("TERM", "xterm")
	if got, want := shownURL(terminal, url), "\x1b]8;;"+url+"\x1b\\"+url+"\x1b]8;;\x1b\\"; got != want {
		t.Errorf("in a terminal: %q, want %q", got, want)
	}
	if got := shownURL(&bytes.Buffer{}, url+"\x1b\\\x07"); got != url+"\\" {
		t.Errorf("elsewhere: %q", got)
	}
	for _, name := range []string{"dumb", "eterm-color"} {
		t.Setenv("TERM", name)
		if got := shownURL(terminal, url); got != url {
			t.Errorf("in a terminal of type %s: %q", name, got)
		}
	}
}
