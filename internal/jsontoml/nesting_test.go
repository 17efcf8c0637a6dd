package jsontoml

import (
	"errors"
	"strings"
	"testing"
)

// A repository's .gemini/settings.json of 2 MB of brackets overflowed the
// stack.
func TestNesting(t *testing.T) {
	deep := func(open string, n int) string { return strings.Repeat(open, n) }
	for _, test := range []struct {
		name, text string
		toml, ok   bool
	}{
		{name: "brackets", text: deep("[", 2<<20)},
		{name: "objects", text: deep(`{"a":`, maxNesting+1)},
		{name: "mixed", text: deep(`{"]}":[`, maxNesting)},
		{name: "after a comment", text: "// \"\n/* \" */" + deep("[", maxNesting+1)},
		{name: "after an escaped quote", text: `["\"",` + deep("[", maxNesting)},
		{name: "closed between", text: deep("[],", 10*maxNesting), ok: true},
		{name: "as deep as may be", text: deep("[", maxNesting), ok: true},
		{name: "in a string", text: `{"a":"` + deep("[", 2*maxNesting) + `"}`, ok: true},
		{name: "in comments", text: "//" + deep("[", 2*maxNesting) + "\n/*" + deep("[", 2*maxNesting) + "*/{}", ok: true},
		{name: "many dots", text: `{"a":[` + deep("1.5 ", 1000), ok: true},
		{name: "a string without its end", text: `{"a`, ok: true},
		{name: "a comment without its end", text: `/*`, ok: true},
		{name: "brackets", toml: true, text: "a = " + deep("[", 1<<20)},
		{name: "tables in line", toml: true, text: "a = " + deep("{a = ", maxNesting+1)},
		{name: "a dotted key", toml: true, text: deep("a.", maxKey) + "a = 1"},
		{name: "a header", toml: true, text: "[" + deep("a . ", maxKey) + "a]"},
		{name: "after a text with quotes", toml: true, text: `a = """x"y""""` + "\nb = ''''''\nc = " + deep("[", maxNesting+1)},
		{name: "in strings", toml: true, text: `a = "` + deep("[", 2*maxNesting) + `"` + "\nb = '\\'\nc = '''" + deep("[", 2*maxNesting) + "'''", ok: true},
		{name: "numbers", toml: true, text: "a = [" + deep("1.5, ", 1000) + "]", ok: true},
		{name: "many tables", toml: true, text: deep("[a.b]\nc.d = 1.5\n", 1000), ok: true},
	} {
		if err := checkNesting([]byte(test.text), test.toml); errors.Is(err, ErrNesting) == test.ok {
			t.Errorf("%s (TOML: %v): %v", test.name, test.toml, err)
		}
	}
}
