package main

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// allowed is the import graph of docs/ARCHITECTURE.md: the packages below
// pollux/internal that each package may import. sys stands for the four packages below it.
var allowed = map[string][]string{
	"pollux":                                    {"cli"},
	"pollux/bench":                              {"agent/gemini/fakecli", "agent/shared", "editor", "fakemodel", "ide/claudeide", "ide/geminiide/client", "realagents", "sys"},
	"pollux/docs":                               {},
	"pollux/e2e":                                {},
	"pollux/editors":                            {},
	"pollux/internal/agent":                     {"lazy", "paths", "sys", "termtext", "wall"},
	"pollux/internal/agent/acp":                 {"agent", "jsonrpc", "lazy"},
	"pollux/internal/agent/agents":              {"agent", "agent/claude", "agent/codex", "agent/copilot", "agent/custom", "agent/gemini", "agent/opencode", "agent/pool", "agent/queue", "agent/qwen"},
	"pollux/internal/agent/checks":              {"agent", "doctor"},
	"pollux/internal/agent/agenttest":           {"agent", "sys", "sys/systest"},
	"pollux/internal/agent/claude":              {"agent", "agent/program", "jsonl", "lazy", "paths", "sys"},
	"pollux/internal/agent/claude/fakecli":      {},
	"pollux/internal/agent/codex":               {"agent", "agent/acp", "agent/program", "git", "jsonrpc", "jsontoml", "lazy", "paths", "sys"},
	"pollux/internal/agent/copilot":             {"agent", "agent/acp", "agent/program", "jsontoml", "lazy", "paths", "sys"},
	"pollux/internal/agent/custom":              {"agent", "agent/acp", "agent/program", "jsonrpc", "paths"},
	"pollux/internal/agent/gemini":              {"agent", "agent/acp", "agent/gemini/download", "agent/gemini/settings", "agent/program", "jsonl", "lazy", "paths", "sys"},
	"pollux/internal/agent/gemini/download":     {"agent", "sys"},
	"pollux/internal/agent/gemini/fakecli":      {"sys/systest"},
	"pollux/internal/fakemodel":                 {},
	"pollux/internal/agent/gemini/settings":     {"agent", "jsontoml", "lazy", "paths", "sys"},
	"pollux/internal/agent/opencode":            {"agent", "agent/acp", "agent/program", "jsontoml", "lazy", "paths", "sys"},
	"pollux/internal/agent/pool":                {"agent", "outbox", "sys"},
	"pollux/internal/agent/program":             {"agent", "lazy", "npm", "paths", "sys"},
	"pollux/internal/agent/qwen":                {"agent", "agent/acp", "agent/program", "git", "jsontoml", "lazy", "sys"},
	"pollux/internal/agent/queue":               {"agent", "outbox"},
	"pollux/internal/agent/shared":              {"agent", "agent/queue", "jsonl", "jsonrpc", "outbox", "paths", "sys", "termtext"},
	"pollux/internal/agent/shared/checks":       {"agent/shared", "doctor", "sys"},
	"pollux/internal/bridge":                    {"agent", "bridge/change", "lazy", "mcp", "outbox", "paths", "sys", "termtext"},
	"pollux/internal/bridge/change":             {"git", "hunk", "lazy", "paths", "sys"},
	"pollux/internal/bridge/change/changetest":  {},
	"pollux/internal/cli":                       {"agent", "agent/agents", "agent/checks", "agent/gemini/checks", "agent/gemini/download", "agent/gemini/settings", "agent/queue", "agent/shared", "agent/shared/checks", "bridge", "companion", "companion/journal", "config", "crash", "doctor", "editor", "fakemodel", "ide", "ide/asking", "ide/claudeide", "ide/claudeide/checks", "ide/codexide", "ide/codexide/checks", "ide/copilotide", "ide/copilotide/checks", "ide/geminiide", "ide/geminiide/checks", "ide/geminiide/conformance", "ide/opencode", "install", "lazy", "logfile", "paths", "remote", "sys", "termtext", "typo", "usage", "usage/metrics", "view/lsp", "view/term", "view/tmux", "view/web", "wall"},
	"pollux/internal/companion":                 {"companion/journal", "crash", "editor", "git", "hunk", "inputline", "jsonrpc", "lazy", "outbox", "paths", "sys", "termtext"},
	"pollux/internal/companion/journal":         {"lazy", "sys"},
	"pollux/internal/crash":                     {},
	"pollux/internal/config":                    {"agent", "jsontoml", "lazy", "sys", "typo"},
	"pollux/internal/agent/gemini/checks":       {"agent", "agent/gemini", "agent/gemini/settings", "doctor", "sys"},
	"pollux/internal/doctor":                    {"editor", "paths", "sys", "termtext"},
	"pollux/internal/editor":                    {"crash", "jsonrpc", "outbox", "paths", "sys", "termtext"},
	"pollux/internal/ide/geminiide/causes":      {"editor", "ide/geminiide", "sys/systest"},
	"pollux/internal/ide/geminiide/checks":      {"doctor", "ide/geminiide", "ide/geminiide/client", "lazy", "sys"},
	"pollux/editors/editortest":                 {"sys"},
	"pollux/internal/gate":                      {"sys"},
	"pollux/internal/git":                       {"sys"},
	"pollux/internal/hostile":                   {},
	"pollux/internal/hunk":                      {},
	"pollux/internal/ide":                       {"companion", "companion/journal", "crash", "editor", "ide/asking", "ide/attach", "ide/claudeide", "ide/codexide", "ide/copilotide", "ide/geminiide", "ide/opencode", "inputline", "sys"},
	"pollux/internal/ide/asking":                {"jsontoml", "sys"},
	"pollux/internal/ide/attach":                {"companion", "editor", "mcp"},
	"pollux/internal/ide/blocking":              {"companion", "crash", "editor", "gate", "ide/attach", "mcp", "outbox", "paths", "sys", "termtext"},
	"pollux/internal/ide/blocking/blockingtest": {"companion", "ide/attach"},
	"pollux/internal/ide/claudeide":             {"companion", "crash", "editor", "gate", "ide/asking", "ide/attach", "ide/blocking", "mcp", "inputline", "paths", "sys", "termtext"},
	"pollux/internal/ide/claudeide/checks":      {"doctor", "ide/asking", "ide/blocking", "ide/claudeide", "paths", "sys"},
	"pollux/internal/ide/codexide":              {"companion", "crash", "editor", "gate", "ide/asking", "inputline", "outbox", "paths", "sys"},
	"pollux/internal/ide/codexide/checks":       {"doctor", "ide/codexide", "sys"},
	"pollux/internal/ide/copilotide":            {"companion", "editor", "gate", "ide/asking", "ide/attach", "ide/blocking", "mcp", "inputline", "paths", "sys"},
	"pollux/internal/ide/copilotide/checks":     {"doctor", "ide/copilotide", "sys"},
	"pollux/internal/ide/geminiide":             {"companion", "editor", "gate", "ide/asking", "ide/attach", "ide/geminiide/client", "inputline", "jsonrpc", "lazy", "mcp", "npm", "paths", "sys", "termtext"},
	"pollux/internal/ide/geminiide/client":      {"jsonl", "jsonrpc"},
	"pollux/internal/ide/opencode":              {"companion", "editor", "ide/asking", "inputline"},
	"pollux/internal/ide/geminiide/conformance": {"editor", "ide/geminiide", "ide/geminiide/client", "lazy", "sys"},
	"pollux/internal/inputline/inputlinetest":   {"inputline"},
	"pollux/internal/inputline":                 {},
	"pollux/internal/install":                   {"jsontoml", "lazy", "sys"},
	"pollux/internal/jsonl":                     {},
	"pollux/internal/jsonrpc":                   {"jsonl", "sys"},
	"pollux/internal/jsontoml":                  {},
	"pollux/internal/lazy":                      {},
	"pollux/internal/logfile":                   {"sys"},
	"pollux/internal/mcp":                       {"crash", "gate", "jsonl", "jsonrpc", "outbox"},
	"pollux/internal/npm":                       {"sys"},
	"pollux/internal/outbox":                    {},
	"pollux/internal/paths":                     {"sys"},
	"pollux/internal/realagents":                {},
	"pollux/internal/remote":                    {"editor", "jsonl", "lazy", "outbox", "paths", "sys", "termtext"},
	"pollux/internal/sys/disk":                  {},
	"pollux/internal/sys/proc":                  {"sys"},
	"pollux/internal/sys/shell":                 {"sys"},
	"pollux/internal/sys/sock":                  {"sys"},
	"pollux/internal/sys/systest":               {},
	"pollux/internal/termtext":                  {},
	"pollux/internal/typo":                      {},
	"pollux/internal/usage":                     {"agent", "jsonl", "lazy", "outbox", "sys"},
	"pollux/internal/usage/metrics":             {"agent", "lazy"},
	"pollux/internal/view/lsp":                  {"editor", "jsonrpc", "lazy", "paths", "termtext"},
	"pollux/internal/view/term":                 {"editor", "hunk", "outbox", "paths", "sys", "termtext", "view/term/syntax"},
	"pollux/internal/view/term/syntax":          {},
	"pollux/internal/view/tmux":                 {"editor", "inputline", "paths", "sys"},
	"pollux/internal/view/web":                  {"editor", "gate", "jsonl"},
	"pollux/internal/wall":                      {"sys"},
	"pollux/release/docs":                       {"cli"},
}

// ground are the packages that know nothing of agents and editors.
var ground = []string{"crash", "gate", "git", "hunk", "inputline", "jsonl", "jsonrpc", "jsontoml", "lazy", "logfile", "npm", "outbox", "paths", "sys", "sys/disk", "sys/proc", "sys/shell", "sys/sock", "termtext", "typo", "wall"}

// shared are the packages below agent and ide that name no agent; agent/agents is the
// table of agents.
var shared = []string{"agent", "agent/acp", "agent/checks", "agent/pool", "agent/program", "agent/queue", "agent/shared", "agent/shared/checks", "ide/asking", "ide/attach", "ide/blocking", "ide/blocking/blockingtest"}

// brokenRule returns the rule of docs/ARCHITECTURE.md that an import breaks, if
// it breaks one. Both names are without pollux/internal/.
func brokenRule(importer, imported string) string {
	at := func(name string, trees ...string) bool {
		return slices.ContainsFunc(trees, func(tree string) bool { return name == tree || strings.HasPrefix(name, tree+"/") })
	}
	// product returns the package of one agent: geminiide for ide/geminiide/client.
	product := func(name, tree string) string {
		below, ok := strings.CutPrefix(name, tree+"/")
		if !ok || slices.Contains(shared, name) || name == "agent/agents" {
			return ""
		}
		below, _, _ = strings.Cut(below, "/")
		return below
	}
	sibling := func(tree string) bool {
		theirs := product(imported, tree)
		return theirs != "" && theirs != product(importer, tree)
	}
	toGround := slices.Contains(ground, imported)
	switch {
	case slices.Contains(ground, importer) && imported != "sys" && imported != "jsonl":
		return "a ground package imports no package of Pollux but sys and jsonl"
	case (importer == "editor" || importer == "mcp") && !toGround:
		return "editor and mcp import ground packages only"
	case at(importer, "companion") && !at(imported, "companion", "editor") && !toGround:
		return "the companion's core knows no agent: it imports editor and ground packages only"
	case at(importer, "bridge") && imported != "agent" && imported != "mcp" && !at(imported, "bridge") && !toGround:
		return "the bridge's core knows no agent: it imports agent, mcp and ground packages only"
	case at(importer, "view", "remote") && imported != "editor" && !at(imported, importer) && !toGround:
		return "a view, or remote, imports editor and ground packages only"
	case importer == "doctor" && at(imported, "agent", "ide"):
		return "doctor knows no agent: ide/x/checks and agent/y/checks do"
	case at(importer, "ide") && at(imported, "agent"), at(importer, "agent") && at(imported, "ide"):
		return "packages below ide and below agent do not import each other"
	case at(importer, "agent", "ide") && at(imported, "cli", "remote", "view", "bridge", "install"):
		return "agent and ide know nothing of the command line, the views and the bridge"
	case at(importer, "agent") && at(imported, "companion", "editor"):
		return "agent knows nothing of editors"
	case slices.Contains(shared, importer) && (product(imported, "agent") != "" || product(imported, "ide") != ""):
		return "what all agents share imports no agent"
	case product(importer, "ide") != "" && sibling("ide"), product(importer, "agent") != "" && sibling("agent"):
		return "an agent's package imports no other agent's"
	case imported == "cli":
		return "only main and release/docs import cli"
	}
	return ""
}

// exceptions are the imports that break a rule and have yet to go.
var exceptions = map[string]bool{}

// TestImports checks the import graph: the table above and the rules.
func TestImports(t *testing.T) {
	needed := make(map[string]bool)
	found := packages(t)
	for _, edge := range unused(allowed, found) {
		t.Errorf("%s: remove it from allowed", edge)
	}
	for name, imports := range found {
		may, ok := allowed[name]
		if !ok {
			t.Errorf("%s is not in the import graph: add it to allowed and to docs/ARCHITECTURE.md", name)
		}
		importer, internal := strings.CutPrefix(name, "pollux/internal/")
		for _, path := range imports {
			imported, ours := strings.CutPrefix(path, "pollux/internal/")
			if !ours {
				continue
			}
			if !slices.Contains(may, imported) {
				t.Errorf("%s must not import %s", name, path)
			}
			if !internal {
				continue
			}
			if rule := brokenRule(importer, imported); rule != "" {
				edge := importer + " -> " + imported
				needed[edge] = true
				if !exceptions[edge] {
					t.Errorf("%s breaks a rule: %s", edge, rule)
				}
			}
		}
	}
	for edge := range exceptions {
		if !needed[edge] {
			t.Errorf("%s is no longer imported: remove it from exceptions", edge)
		}
	}
}

// unused returns the rows of a table that have no package, and the imports in it
// that no package needs.
func unused(table, found map[string][]string) (edges []string) {
	for name, may := range table {
		imports, ok := found[name]
		if !ok {
			edges = append(edges, name+" does not exist")
			continue
		}
		for _, imported := range may {
			if !slices.Contains(imports, "pollux/internal/"+imported) {
				edges = append(edges, name+" does not import "+imported)
			}
		}
	}
	slices.Sort(edges)
	return edges
}

// TestUnused checks that unused finds what no package needs.
func TestUnused(t *testing.T) {
	table := map[string][]string{"a": {"b", "c"}, "b": {}, "d": {"b"}}
	found := map[string][]string{"a": {"fmt", "pollux/internal/c"}, "b": {"os"}}
	want := []string{"a does not import b", "d does not exist"}
	if got := unused(table, found); !slices.Equal(got, want) {
		t.Errorf("unused = %q, want %q", got, want)
	}
}

// TestRules checks that the rules refuse what they are for. [TestImports] shows that they allow
// the rest.
func TestRules(t *testing.T) {
	for _, edge := range []string{
		"jsonl -> outbox",
		"sys -> paths",
		"editor -> companion",
		"mcp -> ide/claudeide",
		"companion -> agent",
		"companion/journal -> ide",
		"bridge -> agent/agents",
		"bridge -> ide/attach",
		"bridge/change -> agent/gemini",
		"view/term -> view/web",
		"view/term -> companion",
		"view/web -> ide",
		"doctor -> agent/gemini",
		"doctor -> cli",
		"ide/claudeide -> ide/geminiide",
		"ide/claudeide -> ide/geminiide/client",
		"ide/geminiide/conformance -> ide/gemini",
		"ide/geminiide -> agent/gemini",
		"ide/geminiide -> view/web",
		"ide/blocking -> ide/claudeide",
		"agent/gemini/checks -> ide/geminiide",
		"agent/gemini -> companion",
		"agent/claude -> agent/gemini/settings",
		"agent/pool -> agent/gemini",
	} {
		importer, imported, _ := strings.Cut(edge, " -> ")
		if brokenRule(importer, imported) == "" {
			t.Errorf("%s breaks no rule", edge)
		}
	}
}

// TestArchitectureNamesPackages checks the table of docs/ARCHITECTURE.md: it
// names each package below internal, and a package imports only packages on the
// same floor or a lower one.
func TestArchitectureNamesPackages(t *testing.T) {
	floors := documentedFloors(t)
	for name, imports := range packages(t) {
		name, internal := strings.CutPrefix(name, "pollux/internal/")
		if !internal {
			continue
		}
		floor, named := floors[name]
		if !named {
			t.Errorf("the table of docs/ARCHITECTURE.md has no `%s`", name)
		}
		for _, path := range imports {
			imported := strings.TrimPrefix(path, "pollux/internal/")
			if below, ok := floors[imported]; ok && named && below > floor && !exceptions[name+" -> "+imported] {
				t.Errorf("%s is on floor %d of docs/ARCHITECTURE.md and imports %s, which is on floor %d", name, floor, imported, below)
			}
		}
	}
}

// documentedFloors returns the floor of each package in the table of
// docs/ARCHITECTURE.md. A row starts with a floor's number, or with an empty cell
// for the floor of the row above, and names its packages in the second cell.
func documentedFloors(t *testing.T) map[string]int {
	t.Helper()
	doc, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	floors, floor := make(map[string]int), 0
	table := false
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			table = false
			continue
		}
		first := strings.TrimSpace(cells[1])
		if first == "floor" {
			table = true
		}
		if !table {
			continue
		}
		number, _, _ := strings.Cut(first, " ")
		if n, err := strconv.Atoi(number); err == nil {
			floor = n
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			floors[strings.TrimPrefix(m[1], "internal/")] = floor
		}
	}
	return floors
}

// needGo skips a test of the source that runs go, or git, on a system that has neither, as
// the one where scripts/windows.sh runs the tests. The source is the same on all systems.
func needGo(t *testing.T) {
	t.Helper()
	_, goErr := exec.LookPath("go")
	_, gitErr := exec.LookPath("git")
	if err := cmp.Or(goErr, gitErr); err != nil && runtime.GOOS == "windows" {
		t.Skip("the source is checked where it is built:", err)
	}
}

// packages returns the imports of each package of the three modules. The packages below
// pollux/internal/sys, other than systest, are one there.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	needGo(t)
	out, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	imports := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		for i, path := range fields[1:] {
			if strings.HasPrefix(path, "pollux/internal/sys/") && path != "pollux/internal/sys/systest" {
				fields[i+1] = "pollux/internal/sys"
			}
		}
		imports[fields[0]] = fields[1:]
	}
	return imports
}

var listPackages = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...", "./bench/...", "./e2e/...").Output()
})

// TestBuildTags checks that all build tags are in one package.
func TestBuildTags(t *testing.T) {
	needGo(t)
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

// TestTempDirs checks that the product makes its directories in the one for temporary files
// with disk.MkdirTemp: others could read one of os.MkdirTemp on Windows.
func TestTempDirs(t *testing.T) {
	needGo(t)
	out, err := exec.Command("git", "grep", "-nE", `os\.MkdirTemp\((""|os\.TempDir)`, "--", "*.go", ":!*_test.go", ":!internal/sys/systest").Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		t.Errorf("%s: call disk.MkdirTemp", strings.TrimSpace(line))
	}
}

// TestDependenciesHaveReasons checks that docs/DEPENDENCIES.md gives a reason
// for each direct dependency and each tool of the three modules.
func TestDependenciesHaveReasons(t *testing.T) {
	needGo(t)
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
			parts := strings.Split(tool.Path, "/")
			if !strings.Contains(string(doc), strings.Join(parts[:min(3, len(parts))], "/")) {
				t.Errorf("docs/DEPENDENCIES.md gives no reason for the tool %s", tool.Path)
			}
		}
	}
}

// TestDoctorDocNamesChecks checks that the section of docs/DOCTOR.md about an agent, or the one
// about all agents, names each check that can fail or warn.
func TestDoctorDocNamesChecks(t *testing.T) {
	doc, err := os.ReadFile("docs/DOCTOR.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]string)
	for _, section := range strings.Split(string(doc), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	made := regexp.MustCompile(`(?:\b(?:Fail|Warn)s?\(|\bCheck:\s*)"([a-z-]+)"`)
	for file, title := range map[string]string{
		"internal/ide/claudeide/checks/claude.go":    "Claude Code",
		"internal/ide/claudeide/checks/opencode.go":  "opencode",
		"internal/ide/copilotide/checks/copilot.go":  "Copilot CLI",
		"internal/ide/codexide/checks/codex.go":      "Codex CLI",
		"internal/ide/geminiide/checks/companion.go": "Gemini CLI",
		"internal/ide/geminiide/checks/connect.go":   "Gemini CLI",
		"internal/ide/geminiide/checks/files.go":     "Gemini CLI",
		"internal/ide/geminiide/checks/qwen.go":      "Qwen Code",
		"internal/agent/gemini/checks/program.go":    "Gemini CLI",
		"internal/agent/gemini/checks/settings.go":   "Gemini CLI",
		"internal/agent/gemini/checks/bridge.go":     "The bridge",
		"internal/doctor/causes.go":                  "", // any
		"internal/doctor/part.go":                    "",
		"internal/cli/doctor_parts.go":               "",
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checks := made.FindAllSubmatch(source, -1)
		if len(checks) == 0 {
			t.Errorf("%s has no checks", file)
		}
		section := string(doc)
		if title != "" {
			section = sections["What you see"] + sections[title]
		}
		for _, m := range checks {
			if !strings.Contains(section, "`"+string(m[1])+"`") {
				t.Errorf("the section %q of docs/DOCTOR.md does not name the check %s of %s", title, m[1], file)
			}
		}
	}
}

// jsonrpc.Decode matches names by case, so it skips an exported field without a tag. In the
// packages that use it, a struct with json tags has them on all such fields. (A struct
// without any tag receives nothing, which its first use shows.)
func TestMessagesHaveTags(t *testing.T) {
	dirs := []string{"internal/jsonrpc"}
	for name, imports := range allowed {
		uses := slices.ContainsFunc(imports, func(i string) bool { return i == "editor" || i == "jsonrpc" || i == "mcp" })
		if uses && strings.HasPrefix(name, "pollux/internal/") {
			dirs = append(dirs, strings.TrimPrefix(name, "pollux/"))
		}
	}
	tagged := make(map[string]int)
	for _, dir := range dirs {
		paths, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.StructType)
				if !ok {
					return true
				}
				hasTag := func(f *ast.Field) bool { return f.Tag != nil && strings.Contains(f.Tag.Value, `json:"`) }
				if !slices.ContainsFunc(s.Fields.List, hasTag) {
					return true
				}
				tagged[dir]++
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						if name.IsExported() && !hasTag(f) {
							t.Errorf("%s: the field %s has no json tag", files.Position(name.Pos()), name)
						}
					}
				}
				return true
			})
		}
	}
	for _, dir := range []string{"internal/editor", "internal/ide/blocking", "internal/mcp", "internal/ide/geminiide"} {
		if tagged[dir] == 0 {
			t.Errorf("%s has no struct with json tags", dir)
		}
	}
}
