// Package claude describes Claude Code as an agent: how to find and start it, keep it
// read-only, speak its protocol of JSON lines, and classify its errors.
//
// The protocol has one conversation per process. A prompt "/clear" starts the next one.
package claude

import "pollux/internal/agent"

// maxPrompt limits a prompt, in bytes. It is more text than any model reads.
const maxPrompt = 8 << 20

var (
	readTools  = []string{"Read", "Grep", "Glob"}
	writeTools = []string{"Edit", "Write", "NotebookEdit"}
)

// Agent returns Claude Code's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = &agent.Agent{
	Name: "claude", DisplayName: release.Name, Model: "Claude", Provider: "anthropic",
	Clients:      []string{"claude-code"},
	ExampleModel: "claude-sonnet-5-5",
	Finder:       release.Finder(environment),
	Driver: agent.Driver{
		MaxPrompt: maxPrompt, ReadTools: readTools, WriteTools: writeTools,
		// See message for prompts that look like commands.
		Warm: &agent.Process{Command: warmCommand, Connect: connect, Single: true, Inputs: inputs, Tool: tool, Usage: usage, Failure: failure},
	},
	Explainer: agent.Explainer{
		VarPrefix: "CLAUDE_", Account: account, Remedies: release.AllRemedies(),
		ToolVerbs: map[string]string{"Read": "reading", "Grep": "searching the files for", "Glob": "looking for files"},
		Tidy:      agent.Line, KindOf: kindOf, ResetAfter: resetAfter, Cause: cause,
	},
}

// fault returns an error with this agent's remedy.
var fault = release.Error
