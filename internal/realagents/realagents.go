// Package realagents describes the real agents that scripts/setup.sh installs, for tests and
// measurements: their programs, and the settings and variables that lead them to a fake model.
package realagents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// versions are the tested releases.
var versions = map[string]string{
	"gemini": "0.61.0", "claude": "2.1.332", "codex": "0.171.0", "copilot": "1.0.102", "opencode": "1.18.33", "qwen": "0.24.4",
}

// Version returns the release of an agent to run. A variable, such as GEMINI_VERSION, selects
// another one, for scripts/setup.sh too.
func Version(name string) string {
	return cmp.Or(os.Getenv(strings.ToUpper(name)+"_VERSION"), versions[name])
}

// A User uses agents on this machine.
type User struct {
	Cache   string // the directory .cache, where scripts/setup.sh installs agents
	Home    string // an existing directory
	Project string // the directory that the user works in, and trusts
	Model   string // the URL of a fake model
}

// Arch returns this machine's architecture, as npm names it.
func Arch() string { return map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH] }

// NodeDir returns the directory with the Node.js 22 that scripts/setup.sh installs: Qwen Code
// needs it.
func NodeDir(cache string) string {
	return filepath.Join(cache, "npm", "node", "node_modules", "node-linux-"+Arch(), "bin")
}

// Program returns the path of an agent's program, which may not be installed.
func Program(cache, name string) string {
	modules := filepath.Join(cache, "npm", name+"-"+Version(name), "node_modules")
	platform := "-linux-" + Arch()
	switch name {
	case "claude":
		return filepath.Join(modules, "@anthropic-ai", "claude-code"+platform, "claude")
	case "codex":
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		return filepath.Join(modules, "@openai", "codex"+platform, "vendor", machine+"-unknown-linux-musl", "bin", "codex")
	case "copilot":
		return filepath.Join(modules, "@github", "copilot"+platform, "copilot")
	case "opencode":
		return filepath.Join(modules, "opencode"+platform, "bin", "opencode")
	}
	if runtime.GOOS == "windows" {
		name += ".cmd"
	}
	return filepath.Join(modules, ".bin", name)
}

// ClaudeKey is the key that Claude Code sends.
const ClaudeKey = "sk-ant-api03-none-none-none-none-none-0000"

// Configure writes an agent's settings below the home. It returns the variables that the agent
// needs to ask the model.
func (u User) Configure(name string) (env []string, err error) {
	switch name {
	case "gemini":
		// The CLI would rewrite settings with names of older releases.
		return []string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + u.Model, "GEMINI_MODEL=gemini-2.5-flash"},
			u.write(".gemini/settings.json", `{
		"general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
		"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
		"ide": {"enabled": true, "hasSeenNudge": true},
		"ui": {"hideBanner": true, "hideTips": true, "hideWindowTitle": true},
		"tools": {"useRipgrep": false},
		"privacy": {"usageStatisticsEnabled": false}}`)
	case "codex":
		if err := u.linkCodex(); err != nil {
			return nil, err
		}
		return []string{"FAKE_KEY=none"}, u.write(".codex/config.toml", fmt.Sprintf(`
model = "scripted"
model_provider = "fake"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "%s/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
[projects.%q]
trust_level = "trusted"
`, u.Model, u.Project))
	case "claude":
		return []string{"ANTHROPIC_BASE_URL=" + u.Model, "ANTHROPIC_API_KEY=" + ClaudeKey,
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
				"CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL=1"},
			u.writeJSON(".claude.json", map[string]any{
				"numStartups": 5, "hasCompletedOnboarding": true, "lastOnboardingVersion": Version(name), "theme": "dark",
				"autoUpdates": false, "hasSeenAutoDefaultNudge": true,
				"customApiKeyResponses":         map[string]any{"approved": []string{ClaudeKey[len(ClaudeKey)-20:]}},
				"shiftEnterKeyBindingInstalled": true,
				"projects": map[string]any{u.Project: map[string]any{
					"hasTrustDialogAccepted": true, "projectOnboardingSeenCount": 5, "hasCompletedProjectOnboarding": true,
				}},
			})
	case "copilot":
		if err := u.unpackCopilot(); err != nil {
			return nil, err
		}
		err := u.writeJSON(".copilot/config.json", map[string]any{
			"firstLaunchAt": "2026-11-01T00:00:00.000Z", "appTipShown": true, "trustedFolders": []string{u.Project},
		})
		if err != nil {
			return nil, err
		}
		return []string{"COPILOT_AUTO_UPDATE=false", "COPILOT_OFFLINE=true", "COPILOT_PROVIDER_TYPE=anthropic",
				"COPILOT_PROVIDER_BASE_URL=" + u.Model, "COPILOT_PROVIDER_API_KEY=none", "COPILOT_MODEL=claude-sonnet-4.5"},
			u.write(".copilot/settings.json", `{"banner": "never"}`)
	case "opencode": // it asks before it edits a file or runs a command
		return []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1"},
			u.writeJSON(".config/opencode/opencode.json", map[string]any{
				"$schema":    "https://opencode.ai/config.json", // it would add it, and a warm process would start again
				"autoupdate": false, "share": "disabled", "model": "fake/scripted", "permission": map[string]any{"edit": "ask", "bash": "ask"},
				"provider": map[string]any{"fake": map[string]any{
					"npm": "@ai-sdk/openai-compatible", "name": "Fake", "models": map[string]any{"scripted": map[string]any{"name": "Scripted"}},
					"options": map[string]any{"baseURL": u.Model + "/v1", "apiKey": "none"},
				}},
			})
	case "qwen": // it asks before it edits a file
		// Without the last one, it starts itself again with more memory. Without the version, it
		// would rewrite the settings, and a warm process would start again. Its memory and its
		// suggestions would ask the model more than a test does.
		return []string{"OPENAI_BASE_URL=" + u.Model + "/v1", "OPENAI_API_KEY=none", "OPENAI_MODEL=scripted", "QWEN_CODE_NO_RELAUNCH=true"},
			u.write(".qwen/settings.json", `{"$version": 4, "security": {"auth": {"selectedType": "openai"}}, "general": {"enableAutoUpdate": false},
		"privacy": {"usageStatisticsEnabled": false}, "ide": {"enabled": true, "hasSeenNudge": true}, "tools": {"approvalMode": "default"},
		"memory": {"enableManagedAutoMemory": false}, "ui": {"enableFollowupSuggestions": false}}`)
	}
	return nil, fmt.Errorf("unknown agent %q", name)
}

// linkCodex lets Codex CLI start its daemon from where it is installed. Otherwise it copies itself,
// 0.4 GB, below each home.
func (u User) linkCodex() error {
	link := filepath.Join(u.Home, ".codex", "packages", "app-server-daemon", "current")
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return err
	}
	os.Remove(link) // of an earlier call
	return os.Symlink(filepath.Dir(filepath.Dir(Program(u.Cache, "codex"))), link)
}

// unpacked is set when Copilot CLI has unpacked itself.
var (
	unpackMu sync.Mutex
	unpacked bool
)

// unpackCopilot lets Copilot CLI unpack itself, 0.25 GB, where all users share it.
func (u User) unpackCopilot() error {
	unpackMu.Lock()
	defer unpackMu.Unlock()
	home := filepath.Join(u.Cache, "copilot-"+Version("copilot"))
	shared := filepath.Join(home, ".cache", "copilot")
	if err := os.MkdirAll(shared, 0o700); err != nil {
		return err
	}
	if !unpacked {
		cmd := exec.Command(Program(u.Cache, "copilot"), "--version")
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "COPILOT_AUTO_UPDATE=false", "COPILOT_OFFLINE=true"}
		if err := cmd.Run(); err != nil {
			return err
		}
		unpacked = true
	}
	own := filepath.Join(u.Home, ".cache", "copilot")
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err != nil {
		return err
	}
	return os.Symlink(shared, own)
}

func (u User) writeJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return u.write(name, string(data))
}

// write writes a file below the home.
func (u User) write(name, text string) error {
	path := filepath.Join(u.Home, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// Offline returns the command that runs another one in a network namespace with nothing but
// loopback: closed agents try to reach other hosts, even when told not to. It needs Linux, and
// root or the right to make user namespaces.
func Offline(argv ...string) ([]string, error) {
	unshare := []string{"unshare", "--net"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--map-root-user")
	}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("no network namespace: %w: %s", err, out)
	}
	return slices.Concat(unshare, []string{"sh", "-c", `ip link set lo up && exec "$0" "$@"`}, argv), nil
}
