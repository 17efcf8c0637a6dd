package inputline

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for captured, want := range map[string][]Row{
		"":                             nil,
		"plain\n\n":                    {{"plain", "plain"}, {"", ""}},
		"a\x1b[2mb\x1b[22mc\n":         {{"abc", "ac"}},
		"\x1b[2mover\nrows\x1b[mnot\n": {{"over", ""}, {"rowsnot", "not"}},
		"\x1b[7mT\x1b[0;2mype here\n":  {{"Type here", ""}}, // the cursor on a hint
		"\x1b[7mT\x1b[0mype\n":         {{"Type", "Type"}},
		"\x1b[38;2;2;2;2mno\x1b[48;5;2;4:3mne \x1b[1;2;31mdim\x1b[0m\n":         {{"none dim", "none "}},
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x0ex\x0f \xff\x1b[unended\n": {{"link x \ufffd[unended", "link x \ufffd[unended"}},
	} {
		if got := Parse(captured); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", captured, got, want)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, tt := range []struct {
		shown, text string
		holds, is   bool
	}{
		{"why", "why", true, true},
		{"@a.txt:\nwhy is\nthat", "@a.txt: why is that", true, true},
		{"why\u00a0\u200b", "why ", true, true},
		{"the middle and the very end", "the start, the middle and the very end", true, false}, // scrolled
		{"w", "why", false, false},
		{"[Pasted text #1 +3 lines]", "a\nb\nc\nd", true, false},
		{"@a.txt [Pasted ~3 lines]", "@a.txt a\nb\nc", true, false},
		{"half typed [Pasted ~3 lines]", "a\nb\nc", false, false},
		{"half typed why", "why", false, false},
		{"", "why", false, false},
		{"", "", false, true},
	} {
		l := Line{Shown: true, Text: tt.shown}
		if l.Holds(tt.text) != tt.holds || l.Is(tt.text) != tt.is {
			t.Errorf("%q holds %q: %t, is it: %t", tt.shown, tt.text, l.Holds(tt.text), l.Is(tt.text))
		}
		if l.Shown = false; l.Holds(tt.text) || l.Is(tt.text) {
			t.Errorf("%q is not shown, but holds %q", tt.shown, tt.text)
		}
	}
}
