package termtext

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä😀":                "plain ä😀",
		"two\nlines\r\n":          "two lines",
		"\x1b[31mred\x1b]0;t\x07": "[31mred]0;t",
		"c1\u009b31m":             "c131m",
		"raw\x9b31m":              "raw?31m",
		"a\u202eb":                "ab",
		"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069.": ".",
		strings.Repeat("ä", 200): strings.Repeat("ä", 150) + "...",
	} {
		if got := Line(in, 300); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// A model's text keeps its lines and its emoji, and steers no terminal.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"two\n\tlines ä\n":                  "two\n\tlines ä\n",
		"family \U0001F468\u200d\U0001F469": "family \U0001F468\u200d\U0001F469",
		"\x1b]52;c;eA==\x07\r\n":            "]52;c;eA==\n",
		"c1\u009b31m \x7f":                  "c131m ",
		"raw\x9b31m":                        "raw?31m",
		"access\u202e // \u2066user\u2069\u2028\u2029\u061c\u200e\u200f": "access // user",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// JSON for a terminal says the same, with what would steer it escaped.
func TestJSON(t *testing.T) {
	want := "ä \U0001F468 \u009b31m \x7f \u202e \u2066 \ufeff \U000e0041 \x1b \" \\\\u0041"
	data, err := json.Marshal(map[string]string{want: want})
	if err != nil {
		t.Fatal(err)
	}
	out := JSON(data)
	for _, r := range string(out) {
		if !unicode.IsGraphic(r) {
			t.Errorf("%q holds %U", out, r)
		}
	}
	var got map[string]string
	if err := json.Unmarshal(out, &got); err != nil || got[want] != want {
		t.Errorf("%q became %v, %v", out, got, err)
	}
}
