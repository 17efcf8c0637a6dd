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

// Agent returns Gemini CLI's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = &agent.Agent{
	Name: "gemini", DisplayName: release.Name, Model: "Gemini",
	Clients:      []string{"gemini-cli"},
	Withholds:    agent.WithholdsUnnamed(release.Name, "gemini"),
	ExampleModel: "gemini-2.5-pro", FallbackModel: "gemini-2.5-flash",
	Provider: "gcp.gen_ai", // any endpoint of Google: the CLI chooses one by how the user signed in
	Finder:   finder(),
	Driver: agent.Driver{
		MaxPrompt: maxPrompt, CheckTempDir: checkTempDir,
		ReadTools: readTools, ReadAliases: readAliases, WriteTools: writeTools, SearchTool: searchTool,
		OneShot: &agent.Process{
			Command: oneShotCommand, Connect: connectOneShot, Prompt: escape, Tool: oneShotTool, Usage: oneShotUsage,
			Monitor: func(env agent.Env, _ string) agent.Monitor { return newMonitor(env, false) },
			Ended:   classify,
		},
		Escapes: escapes, Unescape: unescape,
		Warm: &agent.Process{
			Command: acpCommand, Connect: acp.Connect, Prompt: acp.PlainStart, Inputs: inputs, CanChange: canChange,
			Tool: toolCall, Notice: isNotice, Usage: usage,
			Monitor: func(env agent.Env, _ string) agent.Monitor { return newMonitor(env, true) },
			Failure: classifyRPC,
		},
	},
	Explainer: agent.Explainer{
		VarPrefix: "GEMINI_", Account: account, Remedies: release.AllRemedies(),
		ToolVerbs: map[string]string{
			"read_file": "reading", "list_directory": "listing", "glob": "looking for files",
			"grep_search": "searching the files for", "google_web_search": "searching the web for",
		},
		Tidy: tidy, KindOf: kindOf, Cause: cause, ResetAfter: resetAfter,
	},
}

// fault returns an error with this agent's remedy.
var fault = release.Error

// remedies describe the failures that are particular to Gemini CLI.
var remedies = agent.Remedies{
	agent.NotInstalled:  {What: "Gemini CLI is not installed", Next: "install it with `npm install -g @google/gemini-cli`, let `pollux run` download it, or set GEMINI_CLI_PATH to it"},
	agent.Unenforceable: {What: "Gemini CLI cannot be enforced read-only here", Next: "ask the administrator to remove allowing rules from the system's policies"},
	agent.Auth:          {What: "Gemini CLI is not signed in", Next: "run `gemini` once in a terminal and sign in, or set GEMINI_API_KEY in the environment of Pollux"},
	agent.Unlinked:      {What: "Gemini CLI has no credentials in change mode, because Pollux cannot link to yours and does not copy them", Next: "allow symbolic links (on Windows: turn on Developer Mode), or set GEMINI_API_KEY or GEMINI_RUNNER=spawn in the environment of Pollux"},
	agent.TierEnded:     {What: "Google no longer serves this account's tier in Gemini CLI", Next: "use a Gemini API key (GEMINI_API_KEY) or a paid plan"},
	agent.Untrusted:     {What: "Gemini CLI does not trust this folder", Next: "run `gemini` in it once and trust it, or set GEMINI_CLI_TRUST_WORKSPACE=true in the environment of Pollux; the CLI then runs the folder's own hooks and reads its .env"},
	agent.Settings:      {What: "Gemini CLI's settings are invalid", Next: "correct the file that it names"},
	agent.TurnLimit:     {What: "Gemini CLI reached its limit of turns", Next: "ask for less at a time, or raise model.maxSessionTurns in its settings"},
	agent.TooMuchOutput: {What: "Gemini CLI's output did not end", Next: "ask for less at a time"},
}

// checkTempDir returns an error for a directory that cannot hold policies: the
// CLI splits a list of policies at commas.
func checkTempDir(dir string) error {
	if strings.Contains(dir, ",") {
		return fmt.Errorf("the temporary directory %s has a comma in its name: set %s to one without", dir, disk.TempVars)
	}
	return nil
}
