package opencode

import (
	"cmp"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// retryDelay stands for each of opencode's first waits, which it does not announce: 2 s, then 4 s.
const retryDelay = 3 * time.Second

// refusal matches a line of the log about a request that the model's service refused.
var refusal = lazy.Regexp(`message="stream error"[^\n]* session\.id=(\S+)[^\n]* error\.error="([^\n]*)"[^\n]*\n`)

// A monitor implements [agent.Monitor]. opencode says nothing about the retries to its client.
type monitor struct{ refusals agent.Scanner }

func newMonitor(agent.Env, string) agent.Monitor {
	return &monitor{agent.Scanner{Pattern: refusal}}
}

func (m *monitor) Read(b []byte) (signs agent.Signs) {
	for _, text := range m.refusals.Read(b) {
		message := strings.TrimPrefix(text[2], "AI_APICallError: ")
		kind := cmp.Or(kindOf(message), agent.Capacity)
		if kind.Overload() || kind == agent.Network { // other errors end the request
			signs.Retries = append(signs.Retries, agent.Retry{Wait: retryDelay, Kind: kind, Message: message, Session: text[1]})
		}
	}
	return signs
}
