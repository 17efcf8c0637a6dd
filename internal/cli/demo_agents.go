package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"pollux/internal/fakemodel"
	"pollux/internal/ide/claudeide"
	"pollux/internal/ide/geminiide"
	"pollux/internal/lazy"
)

// A demoAgent says how the demo runs an agent: with its own settings, and with the
// scripted model.
type demoAgent struct {
	command string
	args    []string
	end     string // the command that ends the agent
	// settings returns files for the agent's home, by their paths in it.
	settings func(project string) map[string]any
	// env returns the variables that restrict the agent to the home and the model.
	env func(home, model string) []string
	// read and write name the model's tools. read is empty if the agent writes a file
	// that the model has not read.
	read, write string
	// see describes what a request to the model says about the editor; "" if it says
	// nothing.
	see func(r fakemodel.Request) string
}

// demoAgents are the agents that the demo can run. The first one is the default.
var demoAgents = []demoAgent{
	{
		command: geminiide.GeminiCommand, end: "/quit",
		settings: func(string) map[string]any {
			return map[string]any{".gemini/settings.json": map[string]any{
				"general": map[string]any{"enableAutoUpdate": false, "enableAutoUpdateNotification": false,
					"disableAutoUpdate": true, "disableUpdateNag": true},
				"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"},
					"folderTrust": map[string]any{"enabled": false}},
				"ui":      map[string]any{"hideBanner": true, "hideTips": true},
				"ide":     map[string]any{"enabled": true, "hasSeenNudge": true},
				"privacy": map[string]any{"usageStatisticsEnabled": false},
			}}
		},
		env: func(home, model string) []string {
			return []string{
				"HOME=" + home, "USERPROFILE=" + home, "GEMINI_CLI_HOME=" + home,
				"GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_API_KEY=demo", "GEMINI_MODEL=gemini-2.5-flash",
				"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
				"GOOGLE_API_KEY=", "GOOGLE_GENAI_USE_VERTEXAI=", "GOOGLE_GENAI_USE_GCA=", "GEMINI_SANDBOX=",
			}
		},
		write: "write_file", see: seenByGemini,
	},
	{
		command: claudeide.ClaudeCommand, end: "/exit", args: []string{"--permission-mode", "default"},
		settings: func(project string) map[string]any {
			return map[string]any{".claude.json": map[string]any{
				"numStartups": 1, "hasCompletedOnboarding": true, "theme": "dark", "autoUpdates": false,
				"hasSeenAutoDefaultNudge": true,
				"customApiKeyResponses":   map[string]any{"approved": []string{demoKey[len(demoKey)-20:]}},
				// It names projects with slashes, also on Windows.
				"projects": map[string]any{filepath.ToSlash(project): map[string]any{
					"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true,
				}},
			}}
		},
		// The home stays the user's: Claude Code also looks for lock files there, where
		// the companion writes its own.
		env: func(home, model string) []string {
			return []string{
				"CLAUDE_CONFIG_DIR=" + home, "ANTHROPIC_BASE_URL=" + model, "ANTHROPIC_API_KEY=" + demoKey,
				"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "ANTHROPIC_CUSTOM_HEADERS=", "CLAUDE_CODE_USE_FOUNDRY=",
				"ANTHROPIC_AUTH_TOKEN=", "ANTHROPIC_MODEL=", "CLAUDE_CODE_USE_BEDROCK=", "CLAUDE_CODE_USE_VERTEX=",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
			}
		},
		read: "Read", write: "Write", see: seenByClaude,
	},
}

// demoKey has the form of a key of Anthropic's API. Claude Code asks about a key that
// it has not seen.
const demoKey = "sk-ant-api03-demo-demo-demo-demo-demo-0000"

// seenByGemini describes the editor's context that Gemini CLI sends as JSON.
func seenByGemini(r fakemodel.Request) string {
	i := strings.LastIndex(r.Text, `"activeFile":`)
	if i < 0 {
		return ""
	}
	var active struct {
		Path   string `json:"path"`
		Cursor struct {
			Line int `json:"line"`
		} `json:"cursor"`
		Text string `json:"selectedText"`
	}
	dec := json.NewDecoder(strings.NewReader(r.Text[i+len(`"activeFile":`):]))
	if dec.Decode(&active) != nil {
		return ""
	}
	seen := fmt.Sprintf("I see %s open in the simulated editor, the cursor in line %d", filepath.Base(active.Path),
		active.Cursor.Line)
	if first, _, _ := strings.Cut(active.Text, "\n"); first != "" {
		seen += fmt.Sprintf(", and %q selected", first)
	}
	return seen + ". "
}

var claudeSelection = lazy.Regexp(`The user selected the lines (\d+) to \d+ from (.+):\n(.*)`)

// seenByClaude describes the selection that Claude Code sends as a sentence.
func seenByClaude(r fakemodel.Request) string {
	m := claudeSelection().FindStringSubmatch(r.System + "\n" + r.Text)
	if m == nil {
		return ""
	}
	return fmt.Sprintf("I see %s open in the simulated editor, and %q selected in line %s. ", filepath.Base(m[2]), m[3], m[1])
}
