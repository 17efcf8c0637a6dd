package opencode

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/hostile"
	"pollux/internal/sys/systest"
)

func write(t *testing.T, text string, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	systest.WriteFile(t, path, text)
	return path
}

// A project whose plugins opencode would load is refused, and other projects are not.
func TestRunsCode(t *testing.T) {
	root := systest.Dir(t)
	home := filepath.Join(root, "home")
	env := agent.Env{"HOME=" + home, "USERPROFILE=" + home}
	write(t, "", home, ".opencode", "plugin", "own.js")
	write(t, `{"plugin": ["own"]}`, home, "opencode.json")
	for name, text := range map[string]string{
		".opencode/plugin/a.js": "", ".opencode/plugins/a.ts": "", "opencode.json": `{"plugin": []}`, "opencode.jsonc": "{/*x*/ \"pl\\u0075gins\": [\"./a.js\"],}",
		".opencode/opencode.json": `{"plugins": ["a"]}`, ".opencode/opencode.jsonc": "{",
	} {
		project := filepath.Join(home, "project")
		path := write(t, text, project, filepath.FromSlash(name))
		for _, dir := range []string{project, filepath.Join(project, "below")} {
			systest.MakeDir(t, dir)
			if reason := runsCode(env, dir); !strings.HasPrefix(reason, path) {
				t.Errorf("%s in %s: %q", name, dir, reason)
			}
			_, err := start(agent.Launch{Dir: dir, TempDir: t.TempDir(), Env: env})
			agenttest.WantKind(t, err, agent.Unenforceable, path)
		}
		if err := os.RemoveAll(project); err != nil {
			t.Fatal(err)
		}
	}
	fine := filepath.Join(home, "fine")
	write(t, `{"permission": {"edit": "allow"}, "mcp": {}}`, fine, "opencode.json")
	write(t, "", fine, ".opencode", "plugin", "README.md")
	write(t, "", fine, "plugin", "a.js")
	if reason := runsCode(env, fine); reason != "" {
		t.Error(reason)
	}
	for _, kind := range hostile.Kinds {
		t.Run(kind, func(t *testing.T) {
			project := filepath.Join(home, kind)
			hostile.Plant(t, kind, filepath.Join(project, "opencode.json"))
			if reason := runsCode(env, project); !strings.Contains(reason, "opencode.json") {
				t.Errorf("got %q", reason)
			}
		})
	}
}

// A call may read what is really in the directory, and a file without instructions from outside.
func TestCallsAllow(t *testing.T) {
	root := systest.Dir(t)
	dir := filepath.Join(root, "project")
	write(t, "x", root, "outside", "secret")
	write(t, "x", dir, "below", "a.txt")
	write(t, "x", dir, "evil", "a.txt")
	for from, to := range map[string]string{"out": "../outside", "file": "../outside/secret", "in": "below", "evil/AGENTS.md": "../../outside/secret", "AGENTS.md": "../outside/secret"} {
		systest.Link(t, to, filepath.Join(dir, filepath.FromSlash(from)))
	}
	for call, want := range map[string]bool{
		"read below/a.txt": true, "read in/a.txt": true, "read none": true, "read .": true, "read " + filepath.Join(dir, "below"): true,
		"grep ": true, "glob ": true, "list ": true, "grep below": true, "grep evil/a.txt": true, "other below/a.txt": true,
		"read ": false, "read file": false, "read out/secret": false, "read below/../../outside/secret": false, "read evil/a.txt": false,
		"read " + filepath.Join(dir, "file"): false, "grep out": false, "glob out": false, "grep file": false, "glob ..": false,
		"other ": false, " ": false, "other evil/a.txt": false, " evil/a.txt": false,
	} {
		tool, file, _ := strings.Cut(call, " ")
		c := &calls{Client: ignore{}, conn: &conn{dir: dir}, names: make(map[string]string), files: make(map[string]string)}
		c.Update(agent.Update{Kind: agent.ToolCall, Status: "pending", ToolCall: "1", Title: tool})
		asked := file
		if tool == "read" { // opencode names its file before it asks
			c.Update(agent.Update{Kind: agent.ToolCallUpdate, Status: "in_progress", ToolCall: "1", Title: tool, File: file})
			asked = ""
		}
		if got := c.allow("1", asked); got != want {
			t.Errorf("%s: %v", call, got)
		}
	}
	c, err := start(agent.Launch{Dir: dir, TempDir: t.TempDir()})
	if err != nil || strings.Contains(agent.Env(c.Env).Get("OPENCODE_CONFIG_CONTENT"), "AGENTS.md") {
		t.Errorf("%v; it gets instructions from outside: %q", err, c.Env)
	}
}

// ignore is a client that ignores updates.
type ignore struct{ agent.Client }

func (ignore) Update(agent.Update) {}

// The settings of a process let opencode ask for the tools that read, and no variable of the user allows more.
func TestSettings(t *testing.T) {
	env := agent.Env{"PATH=/bin", `OPENCODE_PERMISSION={"bash":"allow"}`, "OPENCODE_CONFIG_CONTENT={}", "OPENCODE_DISABLE_PROJECT_CONFIG=0", "ANTHROPIC_API_KEY=k"}
	c, err := start(agent.Launch{Dir: "/a{b", TempDir: t.TempDir(), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	got := agent.Env(c.Env)
	if got.Get("OPENCODE_PERMISSION") != "" || got.Get("OPENCODE_DISABLE_PROJECT_CONFIG") != "1" || got.Get("ANTHROPIC_API_KEY") != "k" {
		t.Errorf("the environment is %q", got)
	}
	var settings struct {
		Permission   map[string]string
		Instructions []string
		Default      string `json:"default_agent"`
		Agent        map[string]struct{ Permission map[string]string }
	}
	if err := json.Unmarshal([]byte(got.Get("OPENCODE_CONFIG_CONTENT")), &settings); err != nil {
		t.Fatal(err)
	}
	for _, allowed := range []map[string]string{settings.Permission, settings.Agent[settings.Default].Permission} {
		if allowed["*"] != "deny" || allowed["edit"] != "deny" || allowed["bash"] != "deny" || allowed["read"] != "ask" {
			t.Errorf("permissions %v", allowed)
		}
	}
	if len(settings.Instructions) > 0 {
		t.Errorf("the name of a directory may hold a replacement: %q", settings.Instructions)
	}
}

// The free service is one without a login.
func TestFree(t *testing.T) {
	for model, want := range map[string][2]bool{
		"opencode/big-pickle": {true, false}, "opencode/x-free": {true, false}, "opencode/claude-sonnet-4-5": {false, true},
		"anthropic/x": {false, true}, "openrouter/x-free": {false, true}, "opencode/new": {false, false},
	} {
		if isFree(model) != want[0] || isPaid(model) != want[1] {
			t.Errorf("%s: free %v, paid %v", model, isFree(model), isPaid(model))
		}
	}
	recorded := `{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s","configOptions":[{"id":"model","currentValue":"opencode/big-pickle","options":[{"value":"opencode/big-pickle"}%s]}]}}`
	got := agenttest.Replay(t, row, t.TempDir(), strings.Replace(recorded, "%s", "", 1))
	if !strings.Contains(got, "opencode auth login") {
		t.Errorf("without a login: %s", got)
	}
	got = agenttest.Replay(t, row, t.TempDir(), strings.Replace(recorded, "%s", `,{"value":"anthropic/claude-sonnet-4-5"}`, 1))
	if !strings.Contains(got, "opencode has no model of its own selected") {
		t.Errorf("with another service: %s", got)
	}
}

// An account is a key at an address, or a login in a directory.
func TestAccount(t *testing.T) {
	base := agent.Env{"HOME=/h", "USERPROFILE=/h"}
	seen := make(map[string]string)
	for name, env := range map[string]agent.Env{
		"login": base, "key": append(base[:2:2], "OPENAI_API_KEY=a"), "other key": append(base[:2:2], "OPENAI_API_KEY=b"),
		"other home": {"HOME=/i", "USERPROFILE=/i"},
	} {
		id := account(env, "/p")
		if seen[id] != "" || strings.Contains(id, "/h") {
			t.Errorf("%s has the account of %s", name, seen[id])
		}
		seen[id] = name
	}
}

func TestNotInstalled(t *testing.T) {
	_, err := row.Locate(agent.Source{Env: agent.Env{"PATH=/none"}})
	agenttest.WantKind(t, err, agent.NotInstalled, "npm install -g opencode-ai")
}
