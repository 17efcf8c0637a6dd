package claude

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/program"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// release is the first one known to be enforced by [enforce].
var release = program.Release{
	Name: "Claude Code", Command: "claude", Variable: "CLAUDE_PATH", Packages: []string{"@anthropic-ai/claude-code"},
	Oldest: "2.1.0", Update: "claude update", Try: "claude -p hello", Env: childEnv,
	Remedies: agent.Remedies{
		agent.Unenforceable: {What: "Claude Code cannot be enforced read-only here", Next: "update Claude Code, or ask the administrator to remove tools from the managed settings"},
		agent.Auth:          {What: "Claude Code is not logged in, or its login was refused", Next: "run `claude` and type /login, or set ANTHROPIC_API_KEY in the environment of Pollux"},
		agent.QuotaDay:      {What: "the usage limit of this Claude account is reached", Next: "wait until it resets, name another model, or ask another agent"},
	},
}

// credentials are the variables that hold a key or name an account. tokens among them
// replace the login.
var (
	tokens      = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"}
	credentials = append(tokens[:len(tokens):len(tokens)],
		"ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL",
		"ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL",
		"AWS_PROFILE", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS")
)

// variables are those that the agent needs to find its login, its model, the network and
// the system. It receives no other variable that starts with CLAUDE: the agent sets some
// for the programs that it starts, one of which may be Pollux, and some weaken the
// enforcement.
var variables = program.Variables{
	Names: []string{
		"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN",
		"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
		"CLAUDE_CODE_SKIP_BEDROCK_AUTH", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
		"CLAUDE_CODE_CLIENT_CERT", "CLAUDE_CODE_CLIENT_KEY", "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
		"CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_GIT_BASH_PATH",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING",
		"MAX_THINKING_TOKENS", "API_TIMEOUT_MS", "CLOUD_ML_REGION",
	},
	Prefixes: []string{"ANTHROPIC_", "AWS_", "GOOGLE_", "CLOUDSDK_", "AZURE_", "VERTEX_REGION_"},
}

func environment(env agent.Env) []string { return variables.Of(env) }

// childEnv returns the environment of a process. tmp is its temporary directory.
func childEnv(from agent.Env, tmp string) []string {
	return variables.Env(from, tmp,
		"DISABLE_AUTOUPDATER=1",
		// The agent's own memory would carry text from one conversation to the next.
		"CLAUDE_CODE_DISABLE_AUTO_MEMORY=1",
	)
}

// enforce are the arguments that leave the model no tool but those that read. No settings,
// hooks, MCP servers or plugins of the user or of the workspace are loaded: a workspace's
// hooks would run even if the user has never trusted it.
var enforce = []string{
	"--tools", strings.Join(readTools, ","),
	"--setting-sources", "",
	"--strict-mcp-config",
	"--permission-mode", "dontAsk",
}

// protocol are the arguments that make the agent answer JSON lines with JSON lines.
var protocol = []string{
	"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--include-partial-messages", "--verbose",
	"--no-session-persistence",
}

func warmCommand(l agent.Launch) (agent.Command, error) {
	dir, _ := configDir(l.Env)
	program.OwnDirs(dir)
	return agent.Command{Args: append(protocol[:len(protocol):len(protocol)], enforce...), Env: childEnv(l.Env, l.Tmp()), Writable: Writable(l.Env)}, nil
}

// configDir returns the agent's own directory, and the file with its state, which is
// beside the directory unless a variable names the directory.
func configDir(env agent.Env) (dir, state string) {
	if dir = env.Get("CLAUDE_CONFIG_DIR"); dir != "" {
		return dir, filepath.Join(dir, ".claude.json")
	}
	home, err := env.HomeDir()
	if err != nil {
		return "", ""
	}
	return filepath.Join(home, ".claude"), filepath.Join(home, ".claude.json")
}

// Writable returns the files and directories that the agent must be able to write, apart
// from the temporary directory of its process. They may not exist yet.
func Writable(env agent.Env) []string {
	dir, state := configDir(env)
	if !filepath.IsAbs(dir) {
		return nil
	}
	return []string{dir, state}
}

// inputs returns the files that the agent reads when it starts: its program, its login,
// and the administrator's settings.
func inputs(from agent.Source, p agent.Program, _ string) []string {
	dir, _ := configDir(from.Env)
	managed := "/etc/claude-code"
	switch runtime.GOOS {
	case "darwin":
		managed = "/Library/Application Support/ClaudeCode"
	case "windows":
		managed = `C:\Program Files\ClaudeCode`
	}
	return []string{p.Path, filepath.Join(dir, ".credentials.json"), filepath.Join(managed, "managed-settings.json")}
}

// maxState limits the file with the agent's state, in bytes.
const maxState = 16 << 20

// account identifies the account whose quota the agent uses. Without a key or a token in
// the environment, it is the one that is logged in.
func account(env agent.Env, _ string) string {
	id := program.Values(env.Get, credentials...)
	loggedIn := true
	for _, name := range tokens {
		loggedIn = loggedIn && env.Get(name) == ""
	}
	if loggedIn {
		dir, state := configDir(env)
		var s struct {
			Login struct {
				Account      string `json:"accountUuid"`
				Organization string `json:"organizationUuid"`
			} `json:"oauthAccount"`
		}
		data, _ := disk.ReadFile(state, maxState)
		json.Unmarshal(data, &s) // without a login, or damaged, it names none
		id = append(id, paths.Real(dir), s.Login.Account, s.Login.Organization)
	}
	return program.Identity(id...)
}
