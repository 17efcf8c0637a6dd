// Package gemini describes Gemini CLI as an agent: how to find and start it,
// keep it read-only, read its output, and classify its errors.
//
// No approval mode of the CLI is read-only, and an @ in a prompt reads files.
// This package handles both.
package gemini

import (
	"fmt"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/sys/disk"
)

// maxPrompt limits a prompt, in bytes: the CLI reads 8 MiB of its standard input
// and drops the rest.
const maxPrompt = 8<<20 - 4096

// command is the CLI's name on the PATH.
const command = "gemini"

// Agent returns Gemini CLI's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = &agent.Agent{
	Name: "gemini", DisplayName: "Gemini CLI", Model: "Gemini",
	Clients: []string{"gemini-cli"},
	Command: command, CommandVar: "GEMINI_CLI_PATH", VarPrefix: "GEMINI_",
	ExampleModel: "gemini-2.5-pro", FallbackModel: "gemini-2.5-flash",
	MaxPrompt: maxPrompt,

	Provider: "gcp.gen_ai", // any endpoint of Google: the CLI chooses one by how the user signed in

	ReadTools: readTools, ReadAliases: readAliases, WriteTools: writeTools, SearchTool: searchTool,
	ToolVerbs: toolVerbs,

	Escapes: escapes, Unescape: unescape,

	Environment: environment, Account: account,

	Locate: locate, AskVersion: release.AskVersion, ReadOnly: ReadOnly, CheckTempDir: checkTempDir,

	Remedies: remedies, Tidy: tidy, KindOf: kindOf, Cause: cause,
	ResetAfter: resetAfter,

	OneShot: agent.OneShot{
		Command: oneShotCommand, Prompt: oneShotPrompt,
		Parser:  func(t *agent.Transcript) agent.Parser { return &parser{t: t} },
		Monitor: func(env agent.Env) agent.Monitor { return &monitor{env: env} },
		Failure: classify,
	},
	Warm: &agent.Warm{
		Command: acpCommand, Connect: acp.Connect, Prompt: acp.PlainStart, Inputs: inputs, CanChange: canChange,
		Tool: toolCall, Notice: isNotice, Usage: usage,
		Monitor: func(env agent.Env) agent.Monitor { return &monitor{acp: true, env: env} },
		Failure: classifyRPC,
	},
}

// fault returns an error with this agent's remedy.
var fault = remedies.Error

// remedies describe the failures of Gemini CLI. Failures of the model have the
// same remedies for all agents.
var remedies = agent.Remedies{
	agent.NotInstalled:  {What: "Gemini CLI is not installed", Next: "install it with `npm install -g @google/gemini-cli`, let `pollux run` download it, or set GEMINI_CLI_PATH to it"},
	agent.TooOld:        {What: "this Gemini CLI is too old to be enforced read-only", Next: "update it with `npm install -g @google/gemini-cli@latest` (0.35 or newer)"},
	agent.NoVersion:     {What: "this Gemini CLI does not report its version, so Pollux does not use it", Next: "run it with --version in a terminal to see what it prints, or set GEMINI_CLI_PATH to Gemini CLI itself and not to a wrapper"},
	agent.Unenforceable: {What: "Gemini CLI cannot be enforced read-only here", Next: "ask the administrator to remove allowing rules from the system's policies"},
	agent.Strayed:       {What: "Gemini CLI used a tool that the policy denies, and was stopped", Next: "check what it changed, and update Gemini CLI"},
	agent.Auth:          {What: "Gemini CLI is not signed in", Next: "run `gemini` once in a terminal and sign in, or set GEMINI_API_KEY in the environment of Pollux"},
	agent.Unlinked:      {What: "Gemini CLI has no credentials in change mode, because Pollux cannot link to yours and does not copy them", Next: "allow symbolic links (on Windows: turn on Developer Mode), or set GEMINI_API_KEY or GEMINI_RUNNER=spawn in the environment of Pollux"},
	agent.TierEnded:     {What: "Google no longer serves this account's tier in Gemini CLI", Next: "use a Gemini API key (GEMINI_API_KEY) or a paid plan"},
	agent.Untrusted:     {What: "Gemini CLI does not trust this folder", Next: "run `gemini` in it once and trust it, or set GEMINI_CLI_TRUST_WORKSPACE=true in the environment of Pollux; the CLI then runs the folder's own hooks and reads its .env"},
	agent.Settings:      {What: "Gemini CLI's settings are invalid", Next: "correct the file that it names"},
	agent.TurnLimit:     {What: "Gemini CLI reached its limit of turns", Next: "ask for less at a time, or raise model.maxSessionTurns in its settings"},
	agent.Stalled:       {What: "Gemini CLI stopped making progress", Next: "run `gemini` in a terminal to see whether it waits for a sign-in, then try again"},
	agent.TooMuchOutput: {What: "Gemini CLI's output did not end", Next: "ask for less at a time"},
	agent.Crashed:       {What: "Gemini CLI ended without a result", Next: "try again; if it happens again, run `gemini -p hello` in a terminal"},
	agent.Failed:        {What: "Gemini CLI failed", Next: "run `gemini -p hello` in a terminal to see more"},
}

// checkTempDir returns an error for a directory that cannot hold policies: the
// CLI splits a list of policies at commas.
func checkTempDir(dir string) error {
	if strings.Contains(dir, ",") {
		return fmt.Errorf("the temporary directory %s has a comma in its name: set %s to one without", dir, disk.TempVars)
	}
	return nil
}

var toolVerbs = map[string]string{
	"read_file": "reading", "list_directory": "listing", "glob": "looking for files",
	"grep_search": "searching the files for", "google_web_search": "searching the web for",
}
