package plain

import (
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä😀":                "plain ä😀",
		"two\nlines\r\n":          "two lines",
		"\x1b[31mred\x1b]0;t\x07": "[31mred]0;t",
		"c1\u009b31m":             "c131m",
		"raw\x9b31m":              "raw?31m",
		"a\u202eb":                "ab",
		strings.Repeat("ä", 200):  strings.Repeat("ä", 150) + "...",
	} {
		if got := Line(in, 300); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
