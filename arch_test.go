package main

import (
	"cmp"
	"encoding/json"
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
	"pollux/internal/agent/acp":                 {},
	"pollux/internal/agent/agents":              {"agent", "agent/gemini"},
	"pollux/internal/agent/gemini":              {"agent", "agent/acp", "agent/gemini/settings", "sys"},
	"pollux/internal/agent/gemini/fakecli":      {},
	"pollux/internal/agent/gemini/fakemodel":    {},
	"pollux/internal/agent/gemini/settings":     {"sys"},
	"pollux/internal/bridge":                    {"agent", "agent/gemini", "bridge/change", "hunk", "paths", "sys"},
	"pollux/internal/bridge/change":             {"hunk", "paths", "sys"},
	"pollux/internal/bridge/change/changetest":  {},
	"pollux/internal/cli":                       {"agent", "agent/agents", "agent/gemini", "agent/gemini/checks", "agent/gemini/fakemodel", "agent/gemini/settings", "bridge", "companion", "companion/journal", "doctor", "editor", "ide/geminiide", "ide/geminiide/checks", "ide/geminiide/conformance", "install", "remote", "sys", "termtext", "view/lsp", "view/term", "view/tmux", "view/web"},
	"pollux/internal/companion":                 {"agent/gemini", "companion/journal", "editor", "hunk", "ide/geminiide", "sys"},
	"pollux/internal/companion/journal":         {"sys"},
	"pollux/internal/agent/gemini/checks":       {"agent", "agent/gemini", "agent/gemini/settings", "doctor", "sys"},
	"pollux/internal/doctor":                    {"editor", "sys", "termtext"},
	"pollux/internal/editor":                    {"jsonl", "outbox", "paths", "sys"},
	"pollux/internal/ide/geminiide/checks":      {"doctor", "editor", "ide/geminiide", "ide/geminiide/client", "paths", "sys"},
	"pollux/editors/editortest":                 {},
	"pollux/internal/hostile":                   {},
	"pollux/internal/hunk":                      {},
	"pollux/internal/ide/geminiide":             {"editor", "sys", "termtext"},
	"pollux/internal/ide/geminiide/client":      {},
	"pollux/internal/ide/geminiide/conformance": {"editor", "ide/geminiide", "ide/geminiide/client", "sys"},
	"pollux/internal/install":                   {"agent/gemini/settings", "sys"},
	"pollux/internal/jsonl":                     {},
	"pollux/internal/outbox":                    {},
	"pollux/internal/paths":                     {},
	"pollux/internal/remote":                    {"editor", "jsonl", "paths", "sys", "termtext"},
	"pollux/internal/sys":                       {},
	"pollux/internal/termtext":                  {},
	"pollux/internal/view/lsp":                  {"editor"},
	"pollux/internal/view/term":                 {"editor", "hunk", "outbox", "sys", "termtext"},
	"pollux/internal/view/tmux":                 {"editor"},
	"pollux/internal/view/web":                  {"editor", "jsonl"},
	"pollux/release/docs":                       {"cli"},
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`,
		"./...", "./bench/...", "./e2e/...").Output()
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
	for _, file := range []string{"go.mod", "bench/go.mod", "e2e/go.mod"} {
		out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		var mod struct {
			Require []struct {
				Path     string
				Indirect bool
			}
			Tool []struct{ Path string }
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatal(err)
		}
		for _, required := range mod.Require {
			if required.Path != "pollux" && !required.Indirect && !strings.Contains(string(doc), required.Path) {
				t.Errorf("docs/DEPENDENCIES.md gives no reason for %s, which %s requires", required.Path, file)
			}
		}
		for _, tool := range mod.Tool {
			if !strings.Contains(string(doc), strings.Join(strings.Split(tool.Path, "/")[:3], "/")) {
				t.Errorf("docs/DEPENDENCIES.md gives no reason for the tool %s", tool.Path)
			}
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
