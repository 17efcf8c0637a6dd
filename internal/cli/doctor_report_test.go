package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/shared"
	"pollux/internal/config"
	"pollux/internal/editor"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// secret is a part of all that the report must not contain: tokens, keys, texts, and the
// names of the user, of directories and of files.
const secret = "hush"

// wantNoSecret checks that a report has what it should have, and no secret.
func wantNoSecret(t *testing.T, report string, want ...string) {
	t.Helper()
	if strings.Contains(strings.ToLower(report), secret) {
		t.Errorf("the report holds a secret:\n%s", report)
	}
	for _, text := range want {
		if !strings.Contains(report, text) {
			t.Errorf("the report does not say %q:\n%s", text, report)
		}
	}
}

// The report for others names what doctor finds, and quotes nothing: no file, no variable, no
// message of an agent.
func TestDoctorReport(t *testing.T) {
	root := systest.Dir(t)
	home, project, bin, tmp := filepath.Join(root, secret+"-home"), filepath.Join(root, secret+"-project"), filepath.Join(root, secret+"-bin"), filepath.Join(root, "tmp")
	write := func(path string, content any) {
		t.Helper()
		text, ok := content.(string)
		if !ok {
			data, err := json.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		systest.WriteFile(t, path, text)
	}
	write(filepath.Join(project, secret+".txt"), secret)
	write(filepath.Join(project, ".env"), "GEMINI_API_KEY="+secret)
	write(filepath.Join(tmp, "x"), "")
	write(filepath.Join(home, ".claude.json"), secret)
	write(filepath.Join(home, ".claude", "settings.json"), `{"permissions":{"defaultMode":"`+secret+`"}}`)
	lock := map[string]any{"pid": 1 << 30, "workspaceFolders": []string{project}, "ideName": secret, "transport": "ws", "authToken": secret}
	write(filepath.Join(home, ".claude", "ide", "1.lock"), lock)
	write(filepath.Join(home, ".copilot", "ide", secret+".lock"), lock)
	write(filepath.Join(home, ".copilot", "settings.json"), secret)
	write(filepath.Join(home, ".gemini", "settings.json"), "{"+secret)
	write(filepath.Join(home, secret+".toml"), "[bridge]\nmodel = \""+secret+"\"\n"+secret+" = 1\n")
	for _, dir := range []string{filepath.Join(tmp, "gemini", "ide"), filepath.Join(home, ".qwen", "ide")} {
		write(filepath.Join(dir, "gemini-ide-server-1-2.json"), map[string]any{
			"port": 1, "workspacePath": project, "authToken": secret, "polluxPid": 1 << 30,
			"ideInfo": map[string]any{"name": secret, "displayName": secret},
		})
	}
	systest.MakeDir(t, bin)
	for _, name := range []string{"claude", "copilot", "codex", "opencode", "qwen", "gemini"} {
		agenttest.WriteProgram(t, bin, name, "echo 9.8.7-"+secret+"; echo "+secret+" >&2", "echo 9.8.7-"+secret)
	}
	systest.SetHome(t, home)
	for key, value := range map[string]string{
		"PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH"), "USER": secret, "LOGNAME": secret,
		"TMPDIR": tmp, "TMP": tmp, "TEMP": tmp, "XDG_RUNTIME_DIR": "", "XDG_CONFIG_HOME": "", "POLLUX_STATE_DIR": "", "POLLUX_RUNTIME_DIR": "",
		"POLLUX_CONFIG": filepath.Join(home, secret+".toml"), "POLLUX_POOL": "off", "GEMINI_API_KEY": secret, "ANTHROPIC_API_KEY": secret,
		"GEMINI_CLI_IDE_AUTH_TOKEN": secret, "GEMINI_CLI_IDE_SERVER_PORT": secret, "CLAUDE_CODE_SSE_PORT": secret,
		"HTTPS_PROXY": "http://me:" + secret + "@127.0.0.1:1", "TERM": secret, "NODE_EXTRA_CA_CERTS": "/" + secret,
		"CLAUDE_CONFIG_DIR": "", "COPILOT_HOME": "", "CODEX_HOME": "", "GEMINI_CLI_HOME": "", "OPENCODE_PERMISSION": "",
	} {
		t.Setenv(key, value)
	}
	t.Chdir(project)
	for _, args := range [][]string{{}, {"gemini", "qwen", "claude", "opencode", "copilot", "codex", "bridge", "nvim"}} {
		var out, errs bytes.Buffer
		if code := Run(t.Context(), IO{Out: &out, Err: &errs}, append([]string{"doctor", "--report"}, args...)); code != 0 {
			t.Fatalf("exit code %d: %s", code, errs.String())
		}
		if !strings.Contains(errs.String(), "read this file before you send it") {
			t.Errorf("it says %q", errs.String())
		}
		path := strings.TrimSpace(out.String())
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || !disk.Private(path, info) && !systest.OnWine() { // it keeps no access lists
			t.Errorf("others can read it: %v, %v", info.Mode(), err)
		}
		wantNoSecret(t, string(data), "GEMINI_API_KEY\n", "  bridge.model\n", "claude 9.8.7\n", "failed   settings/config", "failed   companion/settings", "failed   claude/lock: {program} has this folder")
	}
}

// Other programs tell a companion and a pool their names.
func TestDoctorReportOfCompanions(t *testing.T) {
	var out strings.Builder
	ago := time.Now().Add(-time.Minute)
	r := bugReport{version: "1.2.3-" + secret, dir: "/" + secret, settings: config.Defaults(), silent: 1,
		running: []editor.Running{{Stopped: true}, {Status: editor.Status{
			Version: secret, Editor: editor.Info{DisplayName: secret, Name: secret}, Roots: []string{"/" + secret}, Started: ago.UnixMilli(),
			Surfaces: []string{secret}, Notes: []string{secret}, Diffs: []editor.DiffStatus{{Path: secret}}, Page: true,
			Clients: []editor.Agent{
				{Name: "Claude Code", Version: "2.1.330", Dir: secret, Terminal: secret, Label: secret, Silent: secret, Since: ago.UnixMilli()},
				{Name: secret, Version: secret},
			},
		}}},
		pools: []shared.Status{{
			Version: "1.2.3", Socket: secret, Started: ago, Settings: map[string]string{secret: secret},
			Sessions: []shared.Session{{Dir: secret}}, Workers: []agent.Worker{{Dir: secret}},
		}},
	}
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	wantNoSecret(t, out.String(), "Pollux 1.2.3, go", "one that does not answer", "another editor for this directory, up 1m0s, 1 views, page true",
		"Claude Code 2.1.330, connected for 1m0s, asks before it changes a file: false", "another agent of unknown version",
		"Pollux 1.2.3, up 1m0s, 1 sessions, 1 processes", "1 that cannot be asked")
	full := errors.New("disk full")
	if err := r.write(failing{full}); !errors.Is(err, full) {
		t.Errorf("a failure to write: %v", err)
	}
}

// A failing writer returns an error.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, fmt.Errorf("cannot write: %w", f.err) }
