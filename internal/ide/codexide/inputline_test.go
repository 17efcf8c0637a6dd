package codexide

import (
	"testing"

	"pollux/internal/inputline"
	"pollux/internal/inputline/inputlinetest"
)

func TestInputLine(t *testing.T) {
	inputlinetest.Check(t, "codex", InputLine)

	// While it starts, it shows no footer below typed text.
	for captured, want := range map[string]string{
		"\x1b[1m›\x1b[0m one\n\n\n":           "one",
		"\x1b[1m›\x1b[0m one\n  two\n\n":      "one\ntwo",
		"old\n\n\x1b[1m›\x1b[0m one\n\n  a\n": "one",
	} {
		s := inputline.Screen{Rows: inputline.Parse(captured), Visible: true}
		for s.Rows[s.Y].Bright != "› one" {
			s.Y++
		}
		if got := InputLine(s); got != (inputline.Line{Shown: true, Text: want}) {
			t.Errorf("%q: %+v, want %q", captured, got, want)
		}
	}
}
