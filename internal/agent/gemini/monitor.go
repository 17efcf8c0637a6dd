package gemini

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

const (
	// maxSigns limits how much of standard error is searched for signs.
	maxSigns = 64 << 10
	// retryDelay is roughly the CLI's wait after the first attempt, if it does
	// not announce the wait. It doubles with each attempt.
	retryDelay = 5 * time.Second
	// maxFallbacks is the number of model fallbacks that may happen in a second.
	maxFallbacks = 10
)

var (
	// policyIgnored matches the CLI's messages about a policy that it does not
	// follow.
	policyIgnored = lazy.Regexp(`Ignoring --admin-policy|Failed to read policy|Policy file error`)
	// searchLoop matches the only sign that the CLI repeats a web search
	// endlessly and without a pause, because the search's quota is used up:
	// Node's warning about listeners that accumulate.
	searchLoop = lazy.Regexp(`MaxListenersExceededWarning.*abort listeners`)
	// modelFallback is a line that the CLI prints over and over in this state,
	// if it logs to standard error.
	modelFallback = []byte("Model fallback activated")
	// retryNotice matches "Attempt 1 failed: ... Retrying after 5971ms...", with a
	// message that may have several lines, and "Attempt 1 failed with status 503.
	// Retrying with backoff...".
	retryNotice = lazy.Regexp(`(?s)Attempt (\d+) failed(.*?)(?:Retrying after (\d+)ms|(Retrying with backoff))`)
)

func newMonitor(env agent.Env, acp bool) *monitor {
	return &monitor{acp: acp, env: env, notices: agent.Scanner{Pattern: retryNotice}}
}

// A monitor implements [agent.Monitor].
type monitor struct {
	acp       bool // the process serves the Agent Client Protocol
	env       agent.Env
	text      []byte
	notices   agent.Scanner // for retryNotice
	fallbacks int
	since     time.Time // when the count of fallbacks started
}

func (m *monitor) Read(b []byte) agent.Signs {
	m.text = keepLast(append(m.text, b...), maxSigns)
	signs := agent.Signs{Unenforced: policyIgnored().Match(m.text), Retries: m.retries(b)}
	if m.acp {
		if time.Since(m.since) > time.Second {
			m.fallbacks, m.since = 0, time.Now()
		}
		m.fallbacks += bytes.Count(b, modelFallback)
		signs.SearchLoop = m.fallbacks > maxFallbacks
	} else {
		signs.SearchLoop = searchLoop().Match(m.text)
	}
	return signs
}

// retries returns the retries that a piece of standard error announces.
func (m *monitor) retries(b []byte) (retries []agent.Retry) {
	for _, text := range m.notices.Read(b) {
		n, _ := strconv.Atoi(text[1])
		wait := retryDelay << min(max(n, 1)-1, 10)
		if ms, err := strconv.Atoi(text[3]); err == nil {
			wait = time.Duration(ms) * time.Millisecond
		}
		message := strings.Trim(text[2], ": \n")
		kind := cmp.Or(kindOf(message), agent.Capacity)
		retries = append(retries, agent.Retry{Attempt: n, Wait: wait, Kind: kind, Message: tidy(m.env, message)})
	}
	return retries
}

// keepLast returns the last n bytes.
func keepLast(b []byte, n int) []byte {
	if over := len(b) - n; over > 0 {
		return append(b[:0], b[over:]...)
	}
	return b
}
