package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/fakemodel"
	"pollux/internal/realagents"
)

// Each agent, as an MCP client with the entry that `pollux install bridge` writes, asks another
// agent, whose key is in the user's shell only: Codex CLI, Copilot CLI and Gemini CLI do not
// pass it on to their MCP servers unless their settings name it.
func TestBridgeFromClients(t *testing.T) {
	if !isolated(t) {
		return
	}
	const relay, inner = "please relay", "the inner question"
	all := []struct {
		client, settings string
		argv             []string
		asks, want       string
	}{
		{"gemini", ".gemini/settings.json", []string{"gemini", "--approval-mode", "yolo", "-p", relay}, "claude", "I am messages."},
		{"codex", ".codex/config.toml", []string{"codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", relay},
			"claude", "I am messages."},
		{"qwen", ".qwen/settings.json", []string{"qwen", "--approval-mode", "yolo", "-p", relay}, "claude", "I am messages."},
		{"opencode", ".config/opencode/opencode.json", []string{"opencode", "run", relay}, "claude", "I am messages."},
		{"claude-code", ".claude.json", []string{"claude", "-p", relay, "--allowedTools", "mcp__pollux__query"}, "codex", "I am responses."},
		// It removes this key from its own environment.
		{"copilot", ".copilot/mcp-config.json", []string{"copilot", "--allow-all-tools", "-p", relay}, "claude",
			"Copilot CLI never passes ANTHROPIC_API_KEY"},
	}
	if testing.Short() {
		all = slices.Concat(all[:2], all[5:]) // the ones that withhold it
	}
	for _, c := range all {
		t.Run(c.client, func(t *testing.T) {
			w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
				if !strings.Contains(r.Text, relay) {
					return fakemodel.Say("I am " + r.Method + ".")
				}
				if r.Step > 0 {
					return fakemodel.Say("The answer is " + string(r.Results[len(r.Results)-1].Response))
				}
				tool := "mcp__pollux__query" // some agents tell the model of it later
				if i := slices.IndexFunc(r.Tools, func(name string) bool { return strings.HasSuffix(name, "query") }); i >= 0 {
					tool = r.Tools[i]
				}
				return fakemodel.CallTool(tool, map[string]any{"prompt": inner, "agent": c.asks})
			})
			w.usePool()
			w.env = w.askable()
			w.pollux("install", "bridge", c.client, "--yes")
			settings, err := os.ReadFile(filepath.Join(w.home, c.settings))
			if err != nil || !strings.Contains(string(settings), polluxBinary) || strings.Contains(string(settings), realagents.ClaudeKey) {
				t.Errorf("the settings are %s, %v", settings, err)
			}
			cmd := exec.Command("sh", append([]string{"-c", `exec "$@"`, "sh"}, c.argv...)...) // which looks in the world's PATH
			cmd.Env, cmd.Dir = w.env, w.project
			out, err := cmd.CombinedOutput()
			// Copilot CLI wraps lines at any space.
			if got := strings.Join(strings.Fields(string(out)), " "); err != nil || !strings.Contains(got, c.want) {
				t.Errorf("%v\n%s\nthe settings are %s", err, out, settings)
			}
		})
	}
}
