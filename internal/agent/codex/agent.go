// Package codex describes Codex CLI as an agent: how to start its app server, keep it
// read-only, ask it, and classify its errors.
package codex

import (
	"pollux/internal/agent"
	"pollux/internal/agent/program"
)

// maxPrompt limits a prompt, in bytes: the app server accepts 1,048,576 characters.
const maxPrompt = 1 << 20

// The names of Codex CLI's tools. The model reads files with commands, whose kind the CLI
// recognizes.
const (
	readTool, searchFilesTool, listTool = "read", "search", "list"
	shellTool                           = "shell"
	searchTool, imageTool               = "web_search", "view_image"
	patchTool                           = "apply_patch"
)

// Agent returns Codex CLI's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = &agent.Agent{
	Name: "codex", DisplayName: release.Name, Model: "GPT", Provider: "openai",
	Clients:      []string{"codex"},
	Withholds:    agent.WithholdsUnnamed(release.Name, "codex"),
	ExampleModel: "gpt-5.5",
	Finder:       release.Finder(environment),
	Driver: agent.Driver{
		MaxPrompt: maxPrompt,
		// A command runs in a sandbox in which nothing can be written.
		ReadTools:  []string{readTool, searchFilesTool, listTool, shellTool, imageTool, searchTool},
		Sandboxed:  true,
		WriteTools: []string{patchTool}, SearchTool: searchTool,
		// The app server runs no command that a prompt begins with, and reports everything on its
		// connection.
		Warm: &agent.Process{Command: serverCommand, Connect: connect, Inputs: inputs, TakesSchema: true, Tool: tool, Usage: usage, Failure: failure},
	},
	Explainer: agent.Explainer{
		VarPrefix: "CODEX_", Account: account, Remedies: release.AllRemedies(),
		ToolVerbs: map[string]string{
			readTool: "reading", searchFilesTool: "searching the files for", listTool: "listing", shellTool: "running",
			imageTool: "looking at", searchTool: "searching the web for",
		},
		Tidy: tidy, KindOf: kindOf, Cause: cause, ResetAfter: resetAfter,
	},
}

// release is the oldest one whose app server is known to apply the permissions that
// [serverCommand] defines.
var release = program.Release{
	Name: "Codex CLI", Command: "codex", Variable: "CODEX_PATH", Packages: []string{"@openai/codex"},
	Oldest: "0.160.0", Update: "npm install -g @openai/codex@latest", Try: "codex exec hello", Env: childEnv,
	Remedies: agent.Remedies{
		agent.Unenforceable: {What: "Codex CLI's read-only sandbox does not work here", Next: "run `codex sandbox true` in a terminal to see why, or ask the administrator which permissions the system's settings of Codex CLI require"},
		agent.Auth:          {What: "Codex CLI is not signed in", Next: "run `codex login` in a terminal; a provider of your own needs the variable that `env_key` names in config.toml"},
		agent.QuotaDay:      {What: "the account's usage limit of Codex CLI is reached", Next: "wait until it is renewed, or buy credits"},
		agent.Settings:      {What: "Codex CLI's settings are invalid", Next: "correct the file that it names"},
	},
}

// fault returns an error with this agent's remedy.
var fault = release.Error
