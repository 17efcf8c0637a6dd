package doctor

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What others wrote, into a file or a variable, breaks no line and steers no
// terminal.
func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä😀":                "plain ä😀",
		"two\nlines\r\n":          "two lines",
		"\x1b[31mred\x1b]0;t\x07": "[31mred ]0;t",
		"c1\u009b31m":             "c1 31m",
		strings.Repeat("ä", 200):  strings.Repeat("ä", 150) + "...",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
