package agent

import "time"

// A Usage describes a call to an agent that has ended. It contains nothing of the
// call's text.
type Usage struct {
	Start time.Time
	// Duration is the time from the call to its end. Queued is the part of it
	// before the agent got the prompt.
	Duration, Queued time.Duration
	// Agent is the agent's name in settings. Provider is [Agent.Provider].
	Agent, Provider string
	// Requested is the model that the call asked for, and Model the model that
	// answered. Either may be empty if it is unknown.
	Requested, Model string
	Tokens           Tokens
	// Fallback reports whether the fallback model was asked.
	Fallback bool
	// Error is the kind of failure, or empty for a complete answer.
	Error string
	// NotAsked reports whether the call failed before an agent had its prompt.
	NotAsked bool
}
