package geminiide

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

func TestPrompt(t *testing.T) {
	root := systest.Dir(t)
	// at returns a mention. On Windows a path is in quotes, elsewhere it is escaped.
	at := func(path, escaped string) string {
		if runtime.GOOS == "windows" {
			return `@"` + filepath.FromSlash(path) + `"`
		}
		return "@" + escaped
	}
	a, elsewhere := at("a.go", "a.go"), systest.Abs("/elsewhere/a.go")
	for _, test := range []struct {
		name   string
		p      editor.PromptParams
		want   string
		submit bool
	}{
		{"a file", editor.PromptParams{Path: root + "/src/a.go"}, at("src/a.go", "src/a.go") + " ", false},
		{"a question", editor.PromptParams{Path: root + "/a.go", Question: " why? "}, a + " why?", true},
		{"lines", editor.PromptParams{Path: root + "/a.go", Line: 3, EndLine: 7, Question: "why?"}, a + " lines 3-7: why?", true},
		{"one line", editor.PromptParams{Path: root + "/a.go", Line: 3, EndLine: 3}, a + " line 3 ", false},
		{"a name with spaces", editor.PromptParams{Path: root + "/my file (1).go"}, at("my file (1).go", `my\ file\ \(1\).go`) + " ", false},
		{"elsewhere", editor.PromptParams{Path: elsewhere}, at(elsewhere, elsewhere) + " ", false},
		{"no file", editor.PromptParams{Question: "hello"}, "hello", true},
		{"problems", editor.PromptParams{Path: root + "/a.go", Question: "fix", Problems: []editor.Problem{
			{Line: 2, Severity: "error", Message: "undefined:\n  x", Source: "compiler"}, {Line: 9, Message: "unused"},
		}}, a + " fix\n\nThe editor reports:\n- line 2: error: undefined: x (compiler)\n- line 9: problem: unused", true},
		{"an escape", editor.PromptParams{Question: "a\x1b[201~/quit\rb"}, "a [201~/quit b", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Prompt(test.p, []string{root})
			if got.Text != test.want || got.Submit != test.submit {
				t.Errorf("%q, %v; want %q, %v", got.Text, got.Submit, test.want, test.submit)
			}
			if inner, ok := strings.CutPrefix(got.Paste, "\x1b[200~"); !ok || inner != got.Text+"\x1b[201~" {
				t.Errorf("pasted %q", got.Paste)
			}
		})
	}
}
