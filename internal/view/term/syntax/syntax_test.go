package syntax

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"go.uber.org/goleak"
)

// The expression library has a clock, which ends after a while.
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
		{"a.go", "//x := 1", "<c://x := 1>"},
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

var update = flag.Bool("update", false, "write definitions.zip")

// files are the names of the definitions in the archive. Go has code for a lexer.
var files = strings.Fields(`bash.xml c#.xml c++.xml c.xml cmake.xml css.xml dart.xml diff.xml docker.xml elixir.xml
	emacslisp.xml go.xml haskell.xml hcl.xml html.xml ini.xml java.xml javascript.xml json.xml kotlin.xml lua.xml
	makefile.xml perl.xml php.xml powershell.xml protocol_buffer.xml python.xml r.xml ruby.xml rust.xml scala.xml
	scss.xml sql.xml swift.xml toml.xml typescript.xml viml.xml xml.xml yaml.xml zig.xml`)

// The archive holds the definitions of the linked version of Chroma. After an update of the
// module, `go test . -update` writes it again.
func TestArchive(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/alecthomas/chroma/v2/lexers").Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	module := os.DirFS(filepath.Dir(strings.TrimSpace(string(dir))))
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	for _, name := range files {
		definition, err := fs.ReadFile(module, "lexers/embedded/"+name)
		if name == "go.xml" {
			definition, err = goDefinition()
		}
		if err != nil {
			t.Fatal(err)
		}
		w, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err == nil {
			_, err = w.Write(definition)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	license, err := fs.ReadFile(module, "COPYING")
	if err := errors.Join(err, archive.SetComment(string(license)), archive.Close()); err != nil {
		t.Fatal(err)
	}
	if *update {
		definitions = b.Bytes()
		if err := os.WriteFile("definitions.zip", definitions, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Two versions of Go may compress the same files in different ways.
	if got, want := checksums(t, definitions), checksums(t, b.Bytes()); !maps.Equal(got, want) {
		t.Errorf("the archive has %x, and Chroma %x: run go test . -update", got, want)
	}
}

// checksums returns the checksum of each file in an archive.
func checksums(t *testing.T, archive []byte) map[string]uint32 {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]uint32)
	for _, f := range r.File {
		sums[f.Name] = f.CRC32
	}
	return sums
}

// goDefinition returns Chroma's lexer for Go as XML. It leaves out the templates in raw
// strings, which XML cannot express.
func goDefinition() ([]byte, error) {
	rules, err := lexers.Go.(*chroma.RegexLexer).Rules()
	if err != nil {
		return nil, err
	}
	root := slices.Clone(rules["root"])
	for i, rule := range root {
		if strings.HasPrefix(rule.Pattern, "(`)") {
			root[i] = chroma.Rule{Pattern: "`[^`]*`", Type: chroma.LiteralString}
		}
	}
	lexer, err := chroma.NewLexer(lexers.Go.Config(), func() chroma.Rules { return chroma.Rules{"root": root} })
	if err != nil {
		return nil, err
	}
	return chroma.Marshal(lexer)
}

// Every definition can be used, and its spans fit the text.
func TestDefinitions(t *testing.T) {
	if len(registry().Lexers) != len(files) {
		t.Fatalf("%d lexers for %d files", len(registry().Lexers), len(files))
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
