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

// Each function does its own with the same classes.
func TestClasses(t *testing.T) {
	for _, test := range []struct {
		what, in, line, text, visible, paste string
	}{
		{"a plain text", "a ä 漢 e\u0301", "a ä 漢 e\u0301", "a ä 漢 e\u0301", "a ä 漢 e\u0301", "a ä 漢 e\u0301"},
		{"emoji", "\U0001F468\u200d\U0001F469\u2764\ufe0f", "\U0001F468\u200d\U0001F469\u2764\ufe0f",
			"\U0001F468\u200d\U0001F469\u2764\ufe0f", "\U0001F468\u200d\U0001F469\u2764\ufe0f",
			"\U0001F468\u200d\U0001F469\u2764\ufe0f"},
		{"a tab", "a\tb", "a b", "a\tb", "a   b", "a b"},
		{"a line feed", "a\nb", "a b", "a\nb", "a␊b", "a\nb"},
		{"a carriage return", "a\rb", "a b", "ab", "a␍b", "a b"},
		{"an escape", "a\x1b[2Jb", "a[2Jb", "a[2Jb", "a␛[2Jb", "a [2Jb"},
		{"a delete", "a\x7fb", "ab", "ab", "a␡b", "a b"},
		{"a C1 control", "a\u009bb", "ab", "ab", "a·b", "a b"},
		{"a byte that is no UTF-8", "a\xffb", "a?b", "a?b", "a\ufffdb", "a\ufffdb"},
		{"a bidirectional override", "a\u202eb", "ab", "ab", "a·b", "a\u202eb"},
		{"a bidirectional isolate", "a\u2066b\u2069", "ab", "ab", "a·b·", "a\u2066b\u2069"},
		{"a direction mark", "a\u200fb\u061c", "ab", "ab", "a·b·", "a\u200fb\u061c"},
		{"a zero-width space", "a\u200bb", "ab", "ab", "a·b", "a\u200bb"},
		{"a zero-width non-joiner", "a\u200cb", "ab", "a\u200cb", "a·b", "a\u200cb"},
		{"a word joiner", "a\u2060b", "ab", "ab", "a·b", "a\u2060b"},
		{"a byte order mark", "\ufeffa", "a", "a", "·a", "\ufeffa"},
		{"a soft hyphen", "a\u00adb", "ab", "ab", "a·b", "a\u00adb"},
		{"a tag", "a\U000e0041b", "ab", "ab", "a·b", "a\U000e0041b"},
		{"a variation selector", "a\U000e0101b\ufe01", "ab", "ab", "a·b·", "a\U000e0101b\ufe01"},
		{"a letter without a glyph", "a\u3164b\u115f", "ab", "ab", "a·b·", "a\u3164b\u115f"},
		{"a line separator", "a\u2028b", "a b", "ab", "a·b", "a\u2028b"},
		{"a no-break space", "a\u00a0b", "a b", "a\u00a0b", "a·b", "a\u00a0b"},
		{"a private character", "a\ue000b", "a\ue000b", "a\ue000b", "a\ue000b", "a\ue000b"},
		{"an unassigned character", "a\U0001fafdb", "a\U0001fafdb", "a\U0001fafdb", "a\U0001fafdb", "a\U0001fafdb"},
	} {
		for name, c := range map[string]struct{ got, want string }{
			"Line": {Line(test.in, 0), test.line}, "Text": {Text(test.in), test.text},
			"Visible": {Visible(test.in), test.visible}, "Paste": {Paste(test.in), test.paste},
		} {
			if c.got != c.want {
				t.Errorf("%s: %s(%q) = %q, want %q", test.what, name, test.in, c.got, c.want)
			}
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

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb": "a   b", "\x1b[31mred": "␛[31mred", "a\r": "a␍", "é中😀": "é中😀", "\u202eevil": "·evil", "\x7f": "␡",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
