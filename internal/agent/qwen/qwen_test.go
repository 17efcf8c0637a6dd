package qwen

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/sys/systest"
)

// A process distrusts the project, even if the user or the variables trust it. The
// administrator's settings stay.
func TestCommand(t *testing.T) {
	system := filepath.Join(t.TempDir(), "system.json")
	systest.WriteFile(t, system, `{/*x*/"security": {"folderTrust": {"enabled": false}, "auth": {"enforcedType": "openai"}}, "tools": {"exclude": ["glob"]}}`)
	tmp := t.TempDir()
	env := agent.Env{"PATH=/bin", "QWEN_CODE_SYSTEM_SETTINGS_PATH=" + system, "QWEN_CODE_TRUSTED_FOLDERS_PATH=/mine", "QWEN_CODE_IDE_SERVER_PORT=1", "OPENAI_API_KEY=k"}
	c, err := start(agent.Launch{Dir: "/p", TempDir: tmp, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	got := agent.Env(c.Env)
	if got.Get("OPENAI_API_KEY") != "k" || got.Get("QWEN_CODE_IDE_SERVER_PORT") != "" || !strings.HasPrefix(got.Get("QWEN_CODE_TRUSTED_FOLDERS_PATH"), tmp) {
		t.Errorf("the environment is %q", got)
	}
	if !slices.Contains(c.Args, "--core-tools=read_file,grep_search,glob,list_directory") {
		t.Errorf("the arguments are %q", c.Args)
	}
	text := systest.ReadFile(t, got.Get("QWEN_CODE_SYSTEM_SETTINGS_PATH"))
	var s struct {
		Security struct {
			FolderTrust struct{ Enabled bool }
			Auth        struct{ EnforcedType string }
		}
		Tools struct{ Exclude []string }
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || !s.Security.FolderTrust.Enabled || s.Security.Auth.EnforcedType != "openai" || len(s.Tools.Exclude) != 1 {
		t.Errorf("%s, %v", text, err)
	}
}

func TestModelName(t *testing.T) {
	for id, want := range map[string]string{"$runtime|openai|gpt-5(openai)": "gpt-5", "qwen3-coder-plus(qwen-oauth)": "qwen3-coder-plus", "plain": "plain", "": ""} {
		if got := modelName(id); got != want {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestKinds(t *testing.T) {
	for message, want := range map[string]agent.Kind{"Internal error: Model 'x' not found for authType 'openai'": agent.BadModel, "400 bad": agent.BadRequest, "x": agent.Failed,
		"no answer to initialize: ExtensionStoreBusyError: Extension store is busy at /home/me/.qwen/extension-store": agent.Locked} {
		if got := failure(nil, -32603, message, nil); got.Kind != want || strings.Contains(got.Error(), "Internal error") {
			t.Errorf("%s: %v", message, got)
		}
	}
	agenttest.WantKind(t, failure(nil, -32000, "Authentication required", nil), agent.Auth, "/auth")
}

func TestNotInstalled(t *testing.T) {
	_, err := row.Locate(agent.Source{Env: agent.Env{"PATH=/none"}})
	agenttest.WantKind(t, err, agent.NotInstalled, "npm install -g @qwen-code/qwen-code")
}
