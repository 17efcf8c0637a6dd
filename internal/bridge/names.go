package bridge

import (
	"fmt"
	"time"
)

// Names say what callers of a bridge call the inputs of a call. Errors use these
// words.
type Names struct {
	Agent, Prompt, Query, Dir, Model, Timeout, Length, Session string
	// Duration writes a time limit in the unit of the input.
	Duration func(time.Duration) string
}

// toolNames are the names in the tools of the MCP server.
var toolNames = Names{
	Agent: "agent", Prompt: "prompt", Query: "query", Dir: "workingDirectory", Model: "model", Timeout: "timeout",
	Length: "maxResponseLength", Session: "sessionId",
	Duration: func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) },
}
