package ide

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/editor"
)

func TestLaunchOf(t *testing.T) {
	for command, want := range map[string]string{
		"claude": "claude", "/usr/bin/claude": "claude", "./claude": "claude", "claude.exe": "claude",
		"/opt/npm/opencode.CMD": "opencode", "qwen.ps1": "qwen", "gemini.bat": "gemini",
		"claude.sh": "claude.sh", "claude-next": "claude-next", "npx": "npx",
	} {
		if got := LaunchOf(command); got.Name != want {
			t.Errorf("%s starts %s, want %s", command, got.Name, want)
		}
	}
}

// A command that is not in the table may start any agent.
func TestLaunchOfWrapper(t *testing.T) {
	h := newHost(t, newConfig(t), protocols)
	l := LaunchOf("my-agent")
	if l.Title != "my-agent" || l.Package != "" || !l.IDEMode || l.RestartCode == 0 {
		t.Errorf("got %+v", l)
	}
	env := l.Environ([]string{"A=1"}, h.Env())
	for name, value := range h.Env() {
		if !slices.Contains(env, name+"="+value) {
			t.Errorf("%s is missing", name)
		}
	}
	if !slices.Contains(env, "A=1") {
		t.Error("the environment of Pollux is missing")
	}
}

// Each agent has a name of its own, which says how to install it, and gets the
// variables of its own protocol.
func TestLaunches(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range protocols {
		for _, l := range p.Launches {
			if l.Name == "" || l.Title == "" || l.Package == "" || seen[l.Name] {
				t.Errorf("an incomplete or repeated row: %+v", l)
			}
			seen[l.Name] = true
			companion := map[string]string{"OTHER": "x"}
			for _, name := range p.EnvNames {
				companion[name] = "x"
			}
			env := LaunchOf(l.Name).Environ(nil, companion)
			if slices.Contains(env, "OTHER=x") {
				t.Errorf("%s gets a variable that is not for it", l.Name)
			}
			for _, name := range p.EnvNames {
				if !slices.Contains(env, name+"=x") {
					t.Errorf("%s does not get %s", l.Name, name)
				}
			}
		}
	}
}

// Each agent can be named, and has a prompt of its own kind.
func TestAgents(t *testing.T) {
	h := newHost(t, newConfig(t), protocols)
	kinds := h.Agents()
	if len(kinds) != len(Launches()) {
		t.Errorf("%d agents, and %d can start", len(kinds), len(Launches()))
	}
	prompts := make(map[string]string)
	for _, k := range kinds {
		p := k.Prompt(editor.PromptParams{Path: "/project/a.go", Line: 2, EndLine: 3}, []string{"/project"})
		if k.Command == "" || k.Name == "" || !strings.Contains(p.Text, "a.go") {
			t.Errorf("%+v: %+v", k.AgentKind, p)
		}
		prompts[k.Command] = p.Text
	}
	gemini := "@a.go lines 2-3 "
	if runtime.GOOS == "windows" {
		gemini = `@"a.go" lines 2-3 `
	}
	for command, want := range map[string]string{
		"gemini": gemini, "claude": "@a.go#L2-3 ", "opencode": "@a.go#L2-3 ",
		"copilot": "@a.go lines 2-3 ", "codex": "a.go lines 2-3 ",
	} {
		if prompts[command] != want {
			t.Errorf("%s: %q, want %q", command, prompts[command], want)
		}
	}
}
