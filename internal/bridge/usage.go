package bridge

import (
	"errors"
	"time"

	"pollux/internal/agent"
)

// The kinds of failures that are not the agent's.
const (
	usageTimeout   = "timeout"
	usageCancelled = "cancelled"
	usageOther     = "other" // such as a file that cannot be attached, or an invalid JSON answer
)

// usage returns the usage of a call that ended with that kind of failure.
func (c *call) usage(kind string) agent.Usage {
	u := agent.Usage{
		Start: c.start, Duration: time.Since(c.start), Queued: time.Duration(c.meta.QueuedMs) * time.Millisecond,
		Agent: c.agent.Agent.Name, Provider: c.agent.Agent.Provider, Requested: c.model, Model: c.meta.Model, Fallback: c.meta.Fallback != nil,
		Error: kind, NotAsked: !c.asked || agent.Kind(kind).BeforePrompt(),
	}
	if u.NotAsked {
		u.Model, u.Fallback = "", false
	}
	if c.meta.Tokens != nil {
		u.Tokens = *c.meta.Tokens
	}
	return u
}

// errorKind returns the kind of failure of a call that ended with err. A partial
// answer counts as a failure.
func (c *call) errorKind(err error) string {
	var fault *agent.Error
	switch {
	case c.meta.Partial, errors.Is(err, errTimeout):
		return usageTimeout
	case err == nil:
		return ""
	case errors.As(err, &fault):
		return string(fault.Kind)
	case c.cause() != nil, errors.Is(err, agent.ErrClosed): // the runner may end before the call's context
		return usageCancelled
	}
	return usageOther
}
