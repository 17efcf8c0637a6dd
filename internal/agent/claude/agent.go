// Package claude describes Claude Code as an agent: how to find and start it, keep it
// read-only, speak its protocol of JSON lines, and classify its errors.
//
// The protocol has one conversation per process. A prompt "/clear" starts the next one.
package claude

import (
	"time"

	"pollux/internal/agent"
)

// maxPrompt limits a prompt, in bytes. It is more text than any model reads.
const maxPrompt = 8 << 20

// command is the agent's name on the PATH. npmPackage is its package.
const (
	command    = "claude"
	npmPackage = "@anthropic-ai/claude-code"
)

var (
	readTools  = []string{"Read", "Grep", "Glob"}
	writeTools = []string{"Edit", "Write", "NotebookEdit"}
)

// Agent returns Claude Code's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = &agent.Agent{
	Name: "claude", DisplayName: "Claude Code", Model: "Claude", Provider: "anthropic",
	Clients: []string{"claude-code"},
	Command: command, CommandVar: "CLAUDE_PATH", VarPrefix: "CLAUDE_",
	ExampleModel: "claude-sonnet-5-5",
	MaxPrompt:    maxPrompt,

	ReadTools: readTools, WriteTools: writeTools,
	ToolVerbs: map[string]string{"Read": "reading", "Grep": "searching the files for", "Glob": "looking for files"},

	Escapes:  func(string) bool { return false },
	Unescape: func(text string) string { return text },

	Environment: environment, Account: account,

	Locate: release.Locate, AskVersion: release.AskVersion, ReadOnly: release.ReadOnly,

	Remedies: remedies, Tidy: agent.Line, KindOf: kindOf, ResetAfter: resetAfter, Cause: cause,

	Warm: &agent.Warm{
		Command: warmCommand, Connect: connect, Single: true,
		Prompt: func(text string) string { return text }, // see message
		Inputs: inputs,
		Tool:   tool, Notice: func(string) bool { return false }, Usage: usage,
		Monitor: func(agent.Env) agent.Monitor { return silent{} },
		Failure: failure,
	},
}

// A silent is a monitor of standard error, where Claude Code reports nothing about a
// request.
type silent struct{}

func (silent) Read([]byte) agent.Signs { return agent.Signs{} }

// fault returns an error with this agent's remedy.
var fault = remedies.Error

var remedies = agent.Remedies{
	agent.NotInstalled:  {What: "Claude Code is not installed", Next: "install it with `npm install -g " + npmPackage + "`, or set CLAUDE_PATH to it"},
	agent.TooOld:        {What: "this Claude Code is too old to be enforced read-only", Next: "update it with `claude update` (2.1 or newer)"},
	agent.NoVersion:     {What: "this Claude Code does not report its version, so Pollux does not use it", Next: "run `claude --version` in a terminal to see what it prints, or set CLAUDE_PATH to Claude Code itself and not to a wrapper"},
	agent.Unenforceable: {What: "Claude Code cannot be enforced read-only here", Next: "update Claude Code, or ask the administrator to remove tools from the managed settings"},
	agent.Strayed:       {What: "Claude Code used a tool that Pollux denies, and was stopped", Next: "check what it changed, and update Claude Code"},
	agent.Auth:          {What: "Claude Code is not logged in, or its login was refused", Next: "run `claude` and type /login, or set ANTHROPIC_API_KEY in the environment of Pollux"},
	agent.QuotaDay:      {What: "the usage limit of this Claude account is reached", Next: "wait until it resets, name another model, or ask another agent"},
	agent.Stalled:       {What: "Claude Code stopped making progress", Next: "run `claude` in a terminal to see whether it waits for a login, then try again"},
	agent.TooMuchOutput: {What: "Claude Code's output did not end", Next: "ask for less at a time"},
	agent.Crashed:       {What: "Claude Code ended without a result", Next: "try again; if it happens again, run `claude -p hello` in a terminal"},
	agent.Failed:        {What: "Claude Code failed", Next: "run `claude -p hello` in a terminal to see more"},
}

// resetAfter returns the time until a limit is renewed, which [conn] adds to the message,
// or 0.
func resetAfter(message string) time.Duration {
	m := resetTime().FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	d, _ := time.ParseDuration(m[1])
	return d
}
