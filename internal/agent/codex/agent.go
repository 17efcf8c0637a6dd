// Package codex describes Codex CLI as an agent: how to start its app server, keep it
// read-only, ask it, and classify its errors.
package codex

import "pollux/internal/agent"

// maxPrompt limits a prompt, in bytes: the app server accepts 1,048,576 characters.
const maxPrompt = 1 << 20

// Names of the CLI's tools. The model reads files with commands, whose kind the CLI
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
	Name: "codex", DisplayName: "Codex CLI", Model: "GPT", Provider: "openai",
	Clients: []string{"codex"},
	Command: release.Command, CommandVar: "CODEX_PATH", VarPrefix: "CODEX_",
	ExampleModel: "gpt-5.5",
	MaxPrompt:    maxPrompt,

	// A command runs in a sandbox in which nothing can be written.
	ReadTools:  []string{readTool, searchFilesTool, listTool, shellTool, imageTool, searchTool},
	Sandboxed:  true,
	WriteTools: []string{patchTool}, SearchTool: searchTool,
	ToolVerbs: map[string]string{
		readTool: "reading", searchFilesTool: "searching the files for", listTool: "listing", shellTool: "running",
		imageTool: "looking at", searchTool: "searching the web for",
	},

	Escapes: func(string) bool { return false }, Unescape: same,

	Environment: environment, Account: account,

	Locate: release.Locate, AskVersion: release.AskVersion, ReadOnly: release.ReadOnly,

	Remedies: remedies, Tidy: tidy, KindOf: kindOf, Cause: cause, ResetAfter: resetAfter,

	Warm: &agent.Warm{
		Command: serverCommand, Connect: connect, Inputs: inputs,
		Prompt:      same, // the app server runs no command that a prompt begins with
		TakesSchema: true,
		Tool:        tool, Notice: func(string) bool { return false }, Usage: usage,
		Monitor: func(agent.Env) agent.Monitor { return silent{} },
		Failure: failure,
	},
}

func same(text string) string { return text }

// fault returns an error with this agent's remedy.
var fault = remedies.Error

// remedies describe the failures of Codex CLI.
var remedies = agent.Remedies{
	agent.NotInstalled:  {What: "Codex CLI is not installed", Next: "install it with `npm install -g @openai/codex`, or set CODEX_PATH to it"},
	agent.TooOld:        {What: "this Codex CLI is too old to be enforced read-only", Next: "update it with `npm install -g @openai/codex@latest` (0.169 or newer)"},
	agent.NoVersion:     {What: "this Codex CLI does not report its version, so Pollux does not use it", Next: "run it with --version in a terminal to see what it prints, or set CODEX_PATH to Codex CLI itself and not to a wrapper"},
	agent.Unenforceable: {What: "Codex CLI's read-only sandbox does not work here", Next: "run `codex sandbox true` in a terminal to see why, or ask the administrator which permissions the system's settings of Codex CLI require"},
	agent.Strayed:       {What: "Codex CLI used a tool that it must not use, and was stopped", Next: "check what it changed, and update Codex CLI"},
	agent.Auth:          {What: "Codex CLI is not signed in", Next: "run `codex login` in a terminal; a provider of your own needs the variable that `env_key` names in config.toml"},
	agent.QuotaDay:      {What: "the account's usage limit of Codex CLI is reached", Next: "wait until it is renewed, or buy credits"},
	agent.Settings:      {What: "Codex CLI's settings are invalid", Next: "correct the file that it names"},
	agent.Stalled:       {What: "Codex CLI stopped making progress", Next: "run `codex` in a terminal to see whether it works there, then try again"},
	agent.TooMuchOutput: {What: "Codex CLI's output did not end", Next: "ask for less at a time"},
	agent.Crashed:       {What: "Codex CLI ended without a result", Next: "try again; if it happens again, run `codex exec hello` in a terminal"},
	agent.Failed:        {What: "Codex CLI failed", Next: "run `codex exec hello` in a terminal to see more"},
}
