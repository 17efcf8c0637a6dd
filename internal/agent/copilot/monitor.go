package copilot

import (
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// retryDelay is Copilot CLI's first wait after its service refused a request because of a quota.
// Each wait is longer. It does not announce them.
const retryDelay = 5 * time.Second

// overQuota matches a line of the log about such a request. The log does not say which one.
var overQuota = lazy.Regexp(`Model provider request failed \{[^\n]*"http_status":429[^\n]*\n`)

// A monitor implements [agent.Monitor] for the log. Copilot CLI says nothing about these
// retries to its client: see [words] for others.
type monitor struct{ refusals agent.Scanner }

func newMonitor(agent.Env, string) agent.Monitor {
	return &monitor{agent.Scanner{Pattern: overQuota}}
}

func (m *monitor) Read(b []byte) (signs agent.Signs) {
	for range m.refusals.Read(b) {
		signs.Retries = append(signs.Retries, agent.Retry{Wait: retryDelay, Kind: agent.QuotaMinute})
	}
	return signs
}
