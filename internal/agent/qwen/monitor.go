package qwen

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// logExt is the extension of the log of a session. The rest of its name is the session's ID.
const logExt = ".txt"

// retryNotice matches "[RETRY] Attempt 1 failed with status 429. Retrying with backoff in 2s..." and
// the error that follows some lines later. With no status, the notice has no number, and with a
// wait that the service asks for, "Retrying after explicit delay of 5000ms...".
var retryNotice = lazy.Regexp(`(?s)\[RETRY\] Attempt (\d+) failed.*?(?:in (\d+)s|delay of (\d+)ms)\.\.\..*?\n\} (?:\w+: )?([^\n]*)\n`)

// A monitor implements [agent.Monitor] for the log of a session. Qwen Code says nothing about the
// retries to its client.
type monitor struct {
	session string
	notices agent.Scanner
}

func newMonitor(_ agent.Env, log string) agent.Monitor {
	return &monitor{strings.TrimSuffix(log, logExt), agent.Scanner{Pattern: retryNotice}}
}

func (m *monitor) Read(b []byte) (signs agent.Signs) {
	if m.session == "" { // standard error
		return signs
	}
	for _, text := range m.notices.Read(b) {
		n, _ := strconv.Atoi(text[1])
		seconds, _ := strconv.Atoi(text[2])
		ms, _ := strconv.Atoi(text[3])
		signs.Retries = append(signs.Retries, agent.Retry{
			Attempt: n, Wait: time.Duration(seconds)*time.Second + time.Duration(ms)*time.Millisecond,
			Kind: cmp.Or(kindOf(text[4]), agent.Capacity), Message: text[4], Session: m.session,
		})
	}
	return signs
}
