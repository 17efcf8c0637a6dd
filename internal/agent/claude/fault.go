package claude

import (
	"cmp"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// phrases classify errors by their words, the most specific first.
var phrases = agent.Phrases{
	{agent.Unenforceable, lazy.Regexp(offersTools)},
	{agent.TooOld, lazy.Regexp(`unknown option '--`)},
	{agent.Auth, lazy.Regexp(`Please run /login|Failed to authenticate|` + loginRefused)},
	{agent.TooLong, lazy.Regexp(`Prompt is too long|Request too large`)},
	{agent.BadModel, lazy.Regexp(`issue with the selected model|Model '.*' not found`)},
	{agent.QuotaDay, lazy.Regexp(`You've hit your .*limit|Credit balance is too low`)},
	{agent.Blocked, lazy.Regexp(`Usage Policy`)},
	{agent.Network, lazy.Regexp(`Unable to connect|Connection (refused|error)|\b(ECONNREFUSED|ECONNRESET|ENOTFOUND|ETIMEDOUT|EAI_AGAIN)\b|[Rr]equest timed out|self.signed certificate|fetch failed`)},
}

// kindOf returns the kind of failure that a message describes, or "".
func kindOf(message string) agent.Kind { return phrases.KindOf(message) }

// statuses are the kinds of failures that the model's service reports with an HTTP status.
var statuses = map[int]agent.Kind{
	400: agent.BadRequest, 401: agent.Auth, 403: agent.Auth, 404: agent.BadModel, 413: agent.TooLong, 429: agent.QuotaMinute,
	500: agent.Capacity, 502: agent.Capacity, 503: agent.Capacity, 504: agent.Capacity, 529: agent.Capacity,
}

// failure classifies an error by its words, then by its HTTP status.
func failure(env agent.Env, status int, message string, _ []string) *agent.Error {
	return fault(cmp.Or(kindOf(message), statuses[status], agent.Failed), agent.Line(env, message))
}

// retryKind classifies a retry that the agent announces, by its HTTP status. There is none
// if the service cannot be reached.
func retryKind(status int) agent.Kind {
	if status == 0 {
		return agent.Network
	}
	return cmp.Or(statuses[status], agent.Capacity)
}

// resetAfter finds the time until a limit is renewed, which [conn] adds to the message.
var resetAfter = agent.ResetIn(lazy.Regexp(`\(in (\S+)\)$`))

// cause returns the last line of standard error, or "".
func cause(env agent.Env, stderr string) string {
	stderr = strings.TrimSpace(stderr)
	return agent.Line(env, stderr[strings.LastIndexByte(stderr, '\n')+1:])
}
