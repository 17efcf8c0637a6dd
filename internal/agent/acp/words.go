package acp

import (
	"cmp"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// maxPrompt limits a prompt, in bytes. The agents have no limit.
const maxPrompt = 8 << 20

// Row returns the row of an agent that speaks the protocol. It sets the fields that are alike for
// such agents, if they are not set.
func Row(row agent.Agent) *agent.Agent {
	row.MaxPrompt = maxPrompt
	row.Tidy, row.Cause = agent.Line, Cause
	row.Warm.Prompt, row.Warm.Usage = PlainStart, Usage
	if row.KindOf == nil {
		row.KindOf = KindOf
	}
	if row.Warm.Connect == nil {
		row.Warm.Connect = Connect
	}
	return &row
}

// PlainStart returns a prompt that an agent does not run as a command. Commands start with
// a slash, a dollar sign or an exclamation mark, after any white space. A prompt that does
// not start with a letter or a digit gets a line before it.
func PlainStart(prompt string) string {
	first, _ := utf8.DecodeRuneInString(prompt)
	if prompt == "" || unicode.IsLetter(first) || unicode.IsDigit(first) {
		return prompt
	}
	return "The request:\n\n" + prompt
}

// phrases classify the errors of model services by their words, the most specific first.
var phrases = agent.Phrases{
	{agent.BadModel, lazy.Regexp(`(?i)\bmodel\b[^.\n]{0,80}\b(not found|not exist|not available|not supported)\b|\bmodel_not_found\b|\bno such model\b`)},
	{agent.TooLong, lazy.Regexp(`(?i)\bcontext.length\b|\bcontext window\b|\bprompt is too long\b|\btoo many tokens\b|\bmaximum context\b`)},
	{agent.QuotaDay, lazy.Regexp(`(?i)\binsufficient.quota\b|\bexceeded your current quota\b|\busage limit\b|\b(daily|monthly|weekly) (limit|quota)\b|\bquota exceeded\b|\bout of credits?\b|\bcredit balance\b`)},
	{agent.QuotaMinute, lazy.Regexp(`(?i)\brate.?limit|\btoo many requests\b|\b429\b`)},
	{agent.Auth, lazy.Regexp(`(?i)\bunauthori[sz]ed\b|\bauthentication\b|\b(invalid|incorrect|missing|no)\b[^.\n]{0,20}\bapi.?key\b|\bnot (logged|signed) in\b|\b40[13]\b`)},
	{agent.Capacity, lazy.Regexp(`(?i)\boverloaded\b|\bservice unavailable\b|\bserver.error\b|\b5\d\d\b`)},
	{agent.Network, lazy.Regexp(`(?i)\bfetch failed\b|\bENOTFOUND\b|\bECONNREFUSED\b|\bECONNRESET\b|\bETIMEDOUT\b|\bEAI_AGAIN\b|\b(unable to|could not|cannot) connect\b|\bconnection error\b|\bsocket hang up\b|\bself.signed certificate\b`)},
	{agent.Blocked, lazy.Regexp(`(?i)\bcontent.(filter|policy)|\bdata_inspection_failed\b`)},
	{agent.BadRequest, lazy.Regexp(`(?i)\bbad request\b|\binvalid.request\b|\b400\b`)},
}

// KindOf returns the kind of failure that the error message of a model's service describes,
// or "".
func KindOf(message string) agent.Kind { return phrases.KindOf(message) }

// CodeAuth is the code of the error of an agent that is not logged in.
const CodeAuth = -32000

// Refusal returns the kind of failure of an error response: by its code, then by its words.
func Refusal(code int, message string, kindOf func(message string) agent.Kind) agent.Kind {
	if code == CodeAuth {
		return agent.Auth
	}
	return cmp.Or(kindOf(message), agent.Failed)
}

// Usage reads the tokens of a prompt's result. The result names no model.
func Usage(result json.RawMessage) (model string, tokens agent.Tokens) {
	var r struct{ Usage Tokens }
	json.Unmarshal(result, &r) // without it, all are 0
	return "", agent.Tokens(r.Usage)
}

// Tokens are [agent.Tokens] as a prompt's result has them.
type Tokens struct {
	Input  int `json:"inputTokens"`
	Output int `json:"outputTokens"`
	Cached int `json:"cachedReadTokens"`
	Total  int `json:"totalTokens"`
}

// WithUsage returns a prompt's result with other token counts.
func WithUsage(result json.RawMessage, usage agent.Tokens) json.RawMessage {
	var all map[string]any
	if json.Unmarshal(result, &all) != nil || all == nil { // not an object
		all = make(map[string]any)
	}
	all["usage"] = Tokens(usage)
	text, _ := json.Marshal(all)
	return text
}

var complaint = lazy.Regexp(`(?i)error\b|\b(fail|failed|cannot|could not|must|denied|refused)\b`)

// Cause returns the last line of standard error that complains, or "".
func Cause(env agent.Env, stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		if complaint().MatchString(line) {
			last = line
		}
	}
	return agent.Line(env, last)
}
