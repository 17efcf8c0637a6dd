package cli

import (
	"bytes"
	"testing"

	"pollux/internal/sys/systest"
)

// In a terminal a link is a hyperlink. Elsewhere it is plain text. Neither lets the other
// side control the terminal.
func TestShownURL(t *testing.T) {
	const url = "http://127.0.0.1:1/review/#A"
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	for name, want := range map[string]string{
		"xterm": "\x1b]8;;" + url + "\x1b\\" + url + "\x1b]8;;\x1b\\", "dumb": url, "eterm-color": url,
	} {
		t.Setenv("TERM", name)
		if got, code, err := systest.OnTerminal("stub", "shownurl", url); got != want || code != 0 || err != nil {
			t.Errorf("in a terminal of type %s: %q, %d, %v; want %q", name, got, code, err, want)
		}
	}
	if got := shownURL(&bytes.Buffer{}, url+"\x1b\\\x07"); got != url+"\\" {
		t.Errorf("elsewhere: %q", got)
	}
}
