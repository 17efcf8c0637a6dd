package copilot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/hostile"
	"pollux/internal/sys/systest"
)

// A project whose code Copilot CLI would run is refused, and other projects are not.
func TestRunsCode(t *testing.T) {
	root := systest.Dir(t)
	home := filepath.Join(root, "home")
	env := agent.Env{"HOME=" + home, "USERPROFILE=" + home}
	plant := func(text string, elem ...string) string {
		path := filepath.Join(elem...)
		systest.WriteFile(t, path, text)
		return path
	}
	plant(`{"hooks": {"Stop": []}}`, home, ".claude", "settings.json")
	for name, text := range map[string]string{
		".github/hooks/a.json": "", ".github/copilot/settings.json": `{"hooks": {"a": []}}`, ".github/copilot/settings.local.json": `{"enabledPlugins": {"a": true}}`,
		".claude/settings.json": "{", ".claude/settings.local.json": "{/**/\"hooks\": {\"a\": []},}", ".mcp.json": `{"mcpServers": {"a": {}}}`, ".github/mcp.json": `{"mcpServers": {"a": {}}}`,
	} {
		project := filepath.Join(home, "project")
		path := plant(text, project, filepath.FromSlash(name))
		below := filepath.Join(project, "below")
		systest.MakeDir(t, below)
		for _, dir := range []string{project, below} {
			if got := runsCode(env, dir); got != path {
				t.Errorf("%s in %s: %q", name, dir, got)
			}
			_, err := start(agent.Launch{Dir: dir, TempDir: t.TempDir(), Env: env})
			agenttest.WantKind(t, err, agent.Unenforceable, path)
		}
		if err := os.RemoveAll(project); err != nil {
			t.Fatal(err)
		}
	}
	fine := filepath.Join(home, "fine")
	plant(`{"permissions": {}}`, fine, ".claude", "settings.json")
	plant(`{"mcpServers": {}}`, fine, ".mcp.json")
	plant("", fine, ".github", "workflows", "a.yml")
	if got := runsCode(env, fine); got != "" {
		t.Error(got)
	}
	for _, kind := range hostile.Kinds {
		t.Run(kind, func(t *testing.T) {
			project := filepath.Join(home, kind)
			hostile.Plant(t, kind, filepath.Join(project, ".mcp.json"))
			if runsCode(env, project) == "" {
				t.Error("the project is not refused")
			}
		})
	}
}

// A project with a link to instructions outside of it is refused: they could be a secret of the user.
func TestLeadsOut(t *testing.T) {
	root := systest.Dir(t)
	home := filepath.Join(root, "home")
	env := agent.Env{"HOME=" + home, "USERPROFILE=" + home}
	link := func(to, from string) {
		t.Helper()
		systest.MakeDir(t, filepath.Dir(from))
		systest.Link(t, to, from)
	}
	secret := filepath.Join(root, "secret")
	systest.WriteFile(t, secret, "")
	link(secret, filepath.Join(home, "AGENTS.md")) // the user's own
	for _, name := range []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md", ".github/instructions/a/b.instructions.md"} {
		project := filepath.Join(home, "project")
		path := filepath.Join(project, filepath.FromSlash(name))
		link(secret, path)
		below := filepath.Join(project, "below")
		systest.MakeDir(t, below)
		for _, dir := range []string{project, below} {
			_, err := start(agent.Launch{Dir: dir, TempDir: t.TempDir(), Env: env})
			agenttest.WantKind(t, err, agent.Unenforceable, path)
		}
		if err := os.RemoveAll(project); err != nil {
			t.Fatal(err)
		}
	}
	linked := filepath.Join(home, "linked")
	path := filepath.Join(linked, "docs", "a.instructions.md")
	link(secret, path)
	link("../docs", filepath.Join(linked, ".github", "instructions"))
	if got := leadsOut(env, linked); got != path {
		t.Errorf("a link in a linked directory: %q", got)
	}
	more := filepath.Join(home, "more")
	path = filepath.Join(more, ".github", "instructions", "a")
	link(secret, filepath.Join(more, "docs", "a.instructions.md"))
	link("../../docs", path)
	if got := leadsOut(env, more); got != path {
		t.Errorf("a link to a directory: %q", got)
	}
	outside := filepath.Join(home, "outside")
	path = filepath.Join(outside, ".github", "instructions")
	link(root, path)
	if got := leadsOut(env, outside); got != path {
		t.Errorf("a link to a directory outside: %q", got)
	}
	fine := filepath.Join(home, "fine")
	systest.MakeDir(t, filepath.Join(fine, "docs", "a"))
	link("../docs", filepath.Join(fine, ".github", "instructions"))
	link("docs/agents.md", filepath.Join(fine, "AGENTS.md"))
	if got := leadsOut(env, fine); got != "" {
		t.Error(got)
	}
}

// The model writes the title of a command, so the title alone does not make a tool one that reads.
func TestTool(t *testing.T) {
	for title, want := range map[string][2]string{
		"read Viewing a.txt": {"view", "a.txt"}, "read Searching for 'x'": {"grep", "'x'"}, "search Finding files matching *.go": {"glob", "*.go"},
		"execute Viewing a.txt": {"execute", "Viewing a.txt"}, "edit Creating a.txt": {"edit", "Creating a.txt"}, "read Reading the web": {"read", "Reading the web"},
	} {
		kind, rest, _ := strings.Cut(title, " ")
		if name, summary := tool(agent.Update{ToolKind: kind, Title: rest}); name != want[0] || summary != want[1] {
			t.Errorf("%q: %q, %q", title, name, summary)
		}
	}
}

func TestVersions(t *testing.T) {
	agenttest.WantVersions(t, row, map[string]agent.Kind{
		"1.0.92": "", "1.0.102-1": "", "1.1.0": "", "2.0.0": "", "1.0.91": agent.TooOld, "0.0.500": agent.TooOld, "": agent.NoVersion,
	})
}

// No variable that allows all tools reaches the agent.
func TestEnvironment(t *testing.T) {
	got := agent.Env(variables.Of(agent.Env{"PATH=/bin", "COPILOT_ALLOW_ALL=true", "COPILOT_ASSISTED_APPROVAL=1", "COPILOT_PROVIDER_TYPE=openai", "GH_TOKEN=t"}))
	if got.Get("COPILOT_ALLOW_ALL") != "" || got.Get("COPILOT_ASSISTED_APPROVAL") != "" || got.Get("COPILOT_PROVIDER_TYPE") == "" || got.Get("GH_TOKEN") == "" {
		t.Errorf("got %q", got)
	}
}

func TestNotInstalled(t *testing.T) {
	_, err := row.Locate(agent.Source{Env: agent.Env{"PATH=/none"}})
	agenttest.WantKind(t, err, agent.NotInstalled, "npm install -g @github/copilot")
}
