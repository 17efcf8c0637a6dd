package gemini

import "pollux/internal/agent"

// Agent returns Gemini CLI's row in the table of agents.
func Agent() *agent.Agent {
	return &agent.Agent{
		Name: "gemini", DisplayName: "Gemini CLI", Model: "Gemini",
		Command: "gemini", CommandVar: "GEMINI_CLI_PATH", VarPrefix: "GEMINI_",
		ExampleModel: "gemini-2.5-pro", FallbackModel: "gemini-2.5-flash",
		ReadTools: ReadTools, MaxPrompt: MaxPrompt,
		Escapes: Guarded, Unescape: Unguard,
		ToolVerbs: toolVerbs,
	}
}

var toolVerbs = map[string]string{
	"read_file": "reading", "list_directory": "listing", "glob": "looking for files",
	"grep_search": "searching the files for", "google_web_search": "searching the web for",
}
