package main

import (
	"cmp"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allowed is the import graph of docs/ARCHITECTURE.md: which of the project's
// packages each may import.
var allowed = map[string][]string{
	"pollux":                                    {"cli"},
	"pollux/bench":                              {"agent/gemini/fakecli", "agent/gemini/fakemodel", "editor", "ide/geminiide", "ide/geminiide/client"},
	"pollux/e2e":                                {},
	"pollux/editors":                            {},
	"pollux/internal/agent":                     {},
	"pollux/internal/agent/agents":              {"agent", "agent/gemini"},
	"pollux/internal/agent/gemini":              {"agent", "agent/gemini/settings", "sys"},
	"pollux/internal/agent/gemini/fakecli":      {},
	"pollux/internal/agent/gemini/fakemodel":    {},
	"pollux/internal/agent/gemini/settings":     {"sys"},
	"pollux/internal/bridge":                    {"agent", "agent/gemini", "hunk", "sys"},
	"pollux/internal/cli":                       {"agent", "agent/gemini", "agent/gemini/fakemodel", "agent/gemini/settings", "bridge", "companion", "companion/journal", "doctor", "editor", "ide", "ide/geminiide", "ide/geminiide/conformance", "remote", "sys", "termtext", "view/lsp", "view/term", "view/web"},
	"pollux/internal/companion":                 {"companion/journal", "editor", "hunk", "sys"},
	"pollux/internal/companion/journal":         {"sys"},
	"pollux/internal/doctor":                    {"agent", "agent/gemini", "agent/gemini/settings", "editor", "ide/geminiide", "ide/geminiide/client", "sys", "termtext"},
	"pollux/internal/editor":                    {"sys"},
	"pollux/editors/editortest":                 {},
	"pollux/internal/hostile":                   {},
	"pollux/internal/hunk":                      {},
	"pollux/internal/ide":                       {"companion", "companion/journal", "editor", "ide/geminiide", "sys"},
	"pollux/internal/ide/geminiide":             {"companion", "editor", "sys", "termtext"},
	"pollux/internal/ide/geminiide/client":      {},
	"pollux/internal/ide/geminiide/conformance": {"editor", "ide/geminiide", "ide/geminiide/client", "sys"},
	"pollux/internal/remote":                    {"editor", "ide/geminiide", "sys", "termtext"},
	"pollux/internal/sys":                       {},
	"pollux/internal/termtext":                  {},
	"pollux/internal/view/lsp":                  {"editor"},
	"pollux/internal/view/term":                 {"editor", "hunk", "sys"},
	"pollux/internal/view/web":                  {"editor"},
	"pollux/release/docs":                       {"cli"},
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		may, ok := allowed[fields[0]]
		if !ok {
			t.Errorf("%s is not in the import graph: add it here and to docs/ARCHITECTURE.md", fields[0])
		}
		for _, imported := range fields[1:] {
			if name, ours := strings.CutPrefix(imported, "pollux/internal/"); ours && !slices.Contains(may, name) {
				t.Errorf("%s must not import %s", fields[0], imported)
			}
		}
	}
}

// The build tags are all in one package.
func TestBuildTags(t *testing.T) {
	out, err := exec.Command("git", "grep", "-lE", "^//go:build", "--", "*.go").Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err)
	}
	for file := range strings.Lines(string(out)) {
		if !strings.HasPrefix(file, "internal/sys/") {
			t.Errorf("%s has a build tag: only internal/sys may", strings.TrimSpace(file))
		}
	}
}

// Each dependency has its reason in docs/DEPENDENCIES.md.
func TestDependenciesHaveReasons(t *testing.T) {
	doc, err := os.ReadFile("docs/DEPENDENCIES.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{if not .Indirect}}{{.Path}}{{end}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path != "pollux" && !strings.Contains(string(doc), path) {
			t.Errorf("docs/DEPENDENCIES.md gives no reason for %s", path)
		}
	}
}

// Each test that docs/SECURITY.md names is there.
func TestSecurityNamesItsTests(t *testing.T) {
	doc, err := os.ReadFile("docs/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return cmp.Or(err, filepath.SkipDir)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(doc, -1) {
		if !there[string(m[1])] {
			t.Errorf("docs/SECURITY.md names %s, which is no test", m[1])
		}
	}
}
