package editor

// SendParams ask Pollux to bring a file, or a question about it, to an agent.
type SendParams struct {
	PromptParams
	// Agent names the agent: its command, such as "claude", or its name. If it is
	// empty, Pollux chooses: see docs/PROTOCOL.md.
	Agent string `json:"agent,omitempty"`
	// Terminals are the client's own terminals with agents, the last used one first.
	Terminals []Terminal `json:"terminals,omitempty"`
	// Start, if given, says that the client can start an agent in a new terminal. It
	// is the command of the agent that it would start; empty for the agent that
	// `pollux run` starts.
	Start *string `json:"start,omitempty"`
}

// A Terminal is one of the client's terminals in which it has started an agent.
type Terminal struct {
	// PID is the process that the client has started there.
	PID int `json:"pid"`
	// Agent is the command of the agent; empty if the client does not know it.
	Agent string `json:"agent,omitempty"`
}

// What a [SendResult] says has happened, or is left to do.
const (
	// SentMention: the agent shows the file in its input line.
	SentMention = "mention"
	// SentPane: the prompt was pasted into the agent's tmux pane.
	SentPane = "pane"
	// SendTerminal: the client pastes the prompt into its own terminal.
	SendTerminal = "terminal"
	// SendStart: no agent runs. The client starts one, and pastes the prompt when
	// the agent is ready.
	SendStart = "start"
)

// A SendResult answers [SendParams].
type SendResult struct {
	Status string `json:"status"`
	// Agent is the agent's name. With [SendStart] it is the command to start; empty
	// if the user has not named one.
	Agent string `json:"agent"`
	// Pane is the tmux pane, with [SentPane].
	Pane string `json:"pane,omitempty"`
	// PID is that of the [Terminal], with [SendTerminal].
	PID int `json:"pid,omitempty"`
	// Prompt is the text to paste, with [SendTerminal] and [SendStart].
	Prompt *Prompt `json:"prompt,omitempty"`
}
