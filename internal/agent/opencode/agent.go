// Package opencode describes opencode as an agent: how to find and start it, keep it
// read-only, and classify its errors.
//
// It serves the Agent Client Protocol. By default it writes files and runs commands without a
// question, it obeys the settings of the project, and without a login it asks a free service.
// This package prevents all three.
package opencode

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/agent/program"
	"pollux/internal/paths"
)

// release is the first one known to be read-only with the settings of this package.
var release = program.Release{
	Name: "opencode", Command: "opencode", Variable: "OPENCODE_PATH",
	Packages: []string{"opencode-ai", "opencode-" + strings.Replace(program.Platform(), "win32", "windows", 1)},
	Oldest:   "1.18.0", Update: "opencode upgrade", Try: "opencode run hello", Env: childEnv,
	Remedies: agent.Remedies{
		agent.Unenforceable: {What: "opencode would run code of this project", Next: "remove that file, or ask another agent"},
		agent.Auth:          {What: "opencode is not logged in", Next: "run `opencode auth login` in a terminal, or set the key of a provider in the environment of Pollux"},
		agent.Settings:      {What: "opencode has no model of its own selected and would ask its free service", Next: `set "model" in its opencode.json, or name a model such as anthropic/claude-sonnet-4-5`},
		agent.BadModel:      {What: "opencode has no such model", Next: "run `opencode models` to see the names, or leave the model out"},
	},
}

// Agent returns opencode's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = acp.Row(agent.Agent{
	Name: "opencode", DisplayName: release.Name, Model: "opencode",
	Clients:      []string{"opencode"},
	ExampleModel: "anthropic/claude-sonnet-4-5",
	Provider:     "opencode", // any provider: the settings name it
	Finder:       release.Finder(variables.Of),
	Driver: agent.Driver{
		ReadTools: []string{"read", "grep", "glob", "list"}, WriteTools: []string{"write", "edit", "bash"},
		Warm: &agent.Process{Command: start, Connect: connect, Inputs: inputs, Tool: tool, Failure: failure, Monitor: newMonitor},
	},
	Explainer: agent.Explainer{
		VarPrefix: "OPENCODE_", Account: account, Remedies: release.AllRemedies(), KindOf: kindOf,
		ToolVerbs: map[string]string{"read": "reading", "list": "listing", "glob": "looking for files", "grep": "searching the files for"},
	},
})

// fault returns an error with this agent's remedy.
var fault = release.Error

// variables are those that opencode needs to find its settings and the services of models.
// Without those that name settings of the project, permissions or another database.
var variables = program.Variables{
	Names: []string{
		"OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT", "OPENCODE_MODELS_URL", "OPENCODE_MODELS_PATH",
		"OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_ENABLE_EXPERIMENTAL_MODELS", "GITHUB_TOKEN", "HF_TOKEN",
	},
	Prefixes: []string{
		"ANTHROPIC_", "OPENAI_", "OPENROUTER_", "GOOGLE_", "GEMINI_API_KEY", "VERTEX_", "AWS_", "AZURE_", "CLOUDFLARE_", "XAI_", "GROQ_", "DEEPSEEK_",
		"MISTRAL_", "CEREBRAS_", "TOGETHER_", "FIREWORKS_", "MOONSHOT_", "KIMI_", "ZHIPU_", "ZAI_", "MINIMAX_", "DASHSCOPE_", "AI_GATEWAY_", "OLLAMA_", "LMSTUDIO_",
	},
}

// keys are the variables that identify an account. The login is in the data directory.
var keys = []string{
	"OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_API_KEY", "OPENCODE_AUTH_CONTENT",
	"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
	"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AZURE_API_KEY", "XAI_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "MISTRAL_API_KEY",
}

func childEnv(env agent.Env, tmp string) []string {
	return variables.Env(env, tmp, "OPENCODE_DISABLE_AUTOUPDATE=1")
}

func account(env agent.Env, _ string) string {
	return program.Account(env, xdg(env, "XDG_DATA_HOME", ".local", "share"), keys...)
}

// tool returns the name of a tool, which is the title of a call before the call runs.
func tool(u agent.Update) (name, summary string) {
	name, summary, _ = strings.Cut(u.Title, " ")
	return name, agent.Shorten(cmp.Or(u.File, summary), 60)
}

func kindOf(message string) agent.Kind {
	if strings.Contains(message, "ConfigInvalidError") || strings.Contains(message, "Config file at") {
		return agent.Settings
	}
	return acp.KindOf(message)
}

func failure(env agent.Env, code int, message string, _ []string) *agent.Error {
	switch code {
	case codeProject:
		return fault(agent.Unenforceable, message)
	case codeFree:
		return fault(agent.Settings, "")
	}
	return fault(acp.Refusal(code, message, kindOf), agent.Line(env, strings.TrimPrefix(message, "Internal error: ")))
}

// inputs returns the files that opencode reads when it starts.
func inputs(from agent.Source, p agent.Program, dir string) []string {
	config := xdg(from.Env, "XDG_CONFIG_HOME", ".config")
	files := []string{p.Path, filepath.Join(xdg(from.Env, "XDG_DATA_HOME", ".local", "share"), "auth.json"), filepath.Join(dir, "AGENTS.md")}
	for _, name := range []string{"opencode.json", "opencode.jsonc", "config.json", "AGENTS.md"} {
		files = append(files, filepath.Join(config, name))
	}
	for _, name := range []string{"opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc", ".opencode/plugin", ".opencode/plugins"} {
		files = append(files, filepath.Join(dir, filepath.FromSlash(name)))
	}
	if own := from.Env.Get("OPENCODE_CONFIG"); own != "" {
		files = append(files, own)
	}
	return files
}

// Writable returns the directories that opencode writes to.
func Writable(env agent.Env) []string {
	return []string{
		xdg(env, "XDG_DATA_HOME", ".local", "share"), xdg(env, "XDG_STATE_HOME", ".local", "state"),
		xdg(env, "XDG_CACHE_HOME", ".cache"), xdg(env, "XDG_CONFIG_HOME", ".config"),
	}
}

// xdg returns opencode's directory below the one that a variable names, or below its default
// in the home directory.
func xdg(env agent.Env, name string, elem ...string) string {
	return filepath.Join(program.Dir(env, name, elem...), "opencode")
}

// settings are opencode's settings for one process. They take precedence over the user's.
func settings(dir string) string {
	deny := func() map[string]string {
		return map[string]string{
			"*": "deny", "edit": "deny", "bash": "deny", "webfetch": "deny", "websearch": "deny", "task": "deny", "external_directory": "deny",
			"read": "ask", "grep": "ask", "glob": "ask", "list": "ask", // Pollux answers: see [calls.allow]
		}
	}
	config := map[string]any{
		"permission": deny(),
		// The user's own agents have their own permissions.
		"default_agent": "pollux-reader",
		"agent": map[string]any{
			"pollux-reader": map[string]any{"mode": "primary", "description": "Answers and reads files", "permission": deny()},
			"title":         map[string]any{"disable": true}, // one request per conversation less
		},
		"share": "disabled", "autoupdate": false, "snapshot": false, "lsp": false, "formatter": false,
	}
	// Without the project's settings, opencode does not look for the instructions either. It
	// replaces braces in its settings.
	agents := filepath.Join(dir, "AGENTS.md")
	if !strings.ContainsAny(dir, "{}") && paths.LeadsOut(dir, agents) == "" {
		config["instructions"] = []string{agents}
	}
	text, _ := json.Marshal(config) // strings and booleans
	return string(text)
}

// start returns the command of a process.
func start(l agent.Launch) (agent.Command, error) {
	if reason := runsCode(l.Env, l.Dir); reason != "" {
		return agent.Command{}, fault(agent.Unenforceable, reason)
	}
	return agent.Command{Args: []string{"acp", "--print-logs", "--log-level", "ERROR"}, Env: append(childEnv(l.Env, l.Tmp()),
		"OPENCODE_DISABLE_PROJECT_CONFIG=1", "OPENCODE_CONFIG_CONTENT="+settings(l.Dir),
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		// The conversations do not belong into the user's history.
		"OPENCODE_DB="+filepath.Join(l.TempDir, "opencode.db"),
	), Writable: program.OwnDirs(Writable(l.Env)...)}, nil
}
