package gemini

import (
	"cmp"
	"strconv"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// exits are the exit codes of the CLI that have a meaning. Some are an HTTP
// status modulo 256.
var exits = map[int]agent.Kind{
	41: agent.Auth, 42: agent.BadRequest, 52: agent.Settings, 53: agent.TurnLimit, 55: agent.Untrusted,
	429 % 256: agent.QuotaMinute, 400 % 256: agent.BadRequest, 401 % 256: agent.Auth, 403 % 256: agent.Auth,
	500 % 256: agent.Capacity, 502 % 256: agent.Capacity, 503 % 256: agent.Capacity, 504 % 256: agent.Capacity,
}

// phrases classify errors by their words, the most specific first.
var phrases = agent.Phrases{
	{agent.Unenforceable, policyIgnored},
	{agent.TooOld, lazy.Regexp(`(?i)\bunknown arguments?: .*(policy|output-format|allowed-mcp)|Invalid values:[\s\S]*stream-json`)},
	{agent.Untrusted, lazy.Regexp(`not running in a trusted directory`)},
	{agent.TierEnded, lazy.Regexp(`(?i)\bIneligibleTierError\b|\bUNSUPPORTED_CLIENT\b|\b(consumer|free|individual)s?\b[^.\n]{0,60}\b(tier|accounts?|plans?)\b[^.\n]{0,60}\b(no longer|ended|discontinued|retired)\b`)},
	{agent.Settings, lazy.Regexp(`Please fix the configuration`)},
	{agent.BadModel, lazy.Regexp(`\bModelNotFoundError\b|\bis not found for API version\b|(?i)\bmodel\b[^.\n]{0,80}\bnot found\b`)},
	{agent.QuotaDay, lazy.Regexp(`(?i)\bdaily quota\b|\bRequestsPerDay|\bTerminalQuotaError\b|\bquota will reset after \d+h`)},
	{agent.QuotaMinute, lazy.Regexp(`\bRESOURCE_EXHAUSTED\b|(?i)\bexceeded your current quota\b|\bexhausted your capacity\b|\bquota exceeded\b|\brate limit exceeded\b|\btoo many requests\b|\b(status|code|error)"?:? ?429\b|\b429 (error|too many)`)},
	{agent.Capacity, lazy.Regexp(`\bUNAVAILABLE\b|(?i)\bmodel is overloaded\b|\bno capacity available\b|\b(status|code)"?:? ?5\d\d\b|"status":"INTERNAL"`)},
	{agent.Auth, lazy.Regexp(`\bUNAUTHENTICATED\b|\bPERMISSION_DENIED\b|\bAPI_KEY_INVALID\b|\bFatalAuthenticationError\b|(?i)\bAPI key not valid\b|\binvalid authentication credentials\b|\bset an Auth method\b|\bmust specify the GEMINI_API_KEY\b|\berror authenticating\b|\b(status|code)"?:? ?40[13]\b`)},
	{agent.TooLong, lazy.Regexp(`(?i)\bexceeds the maximum number of tokens\b|\btoken count\b[^.\n]{0,60}\bexceeds\b`)},
	{agent.Blocked, lazy.Regexp(`(?i)\bblocked due to\b|\bPROHIBITED_CONTENT\b|\bfinish ?reason:? (SAFETY|RECITATION)\b`)},
	{agent.Empty, lazy.Regexp(`(?i)\bempty response\b|\bno text or thoughts\b|\bmalformed function call\b`)},
	{agent.TurnLimit, lazy.Regexp(`\bFatalTurnLimitedError\b|\bmax session turns\b`)},
	{agent.Network, lazy.Regexp(`(?i)\bfetch failed\b|\bENOTFOUND\b|\bECONNREFUSED\b|\bECONNRESET\b|\bETIMEDOUT\b|\bEAI_AGAIN\b|\bAPI Error: terminated\b|\bsocket hang up\b|\bself.signed certificate\b|\bUNABLE_TO_VERIFY_LEAF_SIGNATURE\b`)},
	{agent.BadRequest, lazy.Regexp(`\bINVALID_ARGUMENT\b`)},
}

// kindOf returns the kind of failure that a message describes, or "".
func kindOf(message string) agent.Kind { return phrases.KindOf(message) }

// classify returns the failure of a process that ended on its own. It looks at the
// messages of the error and result events, then at the exit code, then at
// standard error.
func classify(env agent.Env, exit int, message, stderr string) *agent.Error {
	if message == noResult {
		if exit == 0 {
			return fault(agent.Crashed, noResult)
		}
		message = ""
	}
	kind := kindOf(message)
	// A 400 has many causes, and the words may be more specific.
	if k := exits[exit]; k != "" && (kind == "" || k == agent.Untrusted || k == agent.TurnLimit) {
		kind = k
	}
	words := toolNoise().ReplaceAllString(stderr, "")
	if kind == "" || kind == agent.BadRequest && message == "" {
		if k := kindOf(words); k != "" {
			kind = k
		}
	}
	if message == "" {
		message = telling(words)
	}
	switch {
	case kind == agent.Untrusted:
		message = "" // it recommends a flag of the CLI, which Pollux does not have
	case kind != "":
	case message == "":
		kind = agent.Crashed
	default:
		kind = agent.Failed
	}
	err := fault(kind, tidy(env, message))
	err.Exit = exit
	return err
}

// toolNoise matches lines of standard error that do not explain why a run ended.
// Some quote files or the model.
var toolNoise = lazy.Regexp(`(?m)^(Error executing tool .*|\[STARTUP\] .*|YOLO mode .*|Loaded cached credentials.*|\(node:\d+\) .*|\(Use .node --trace.*|    at .*|Warning: .*|WARNING: .*|Ripgrep is not available.*)$\n?`)

var (
	complaint = lazy.Regexp(`(?i)error\b|exception\b|\b(fail|failed|cannot|could not|must|not|killed|denied|refused)\b`)
	// logged matches a line from the CLI's log on standard error.
	logged = lazy.Regexp(`^\[[^\]]*\] \[(DEBUG|LOG|INFO|WARN|ERROR)\] ?(.*)`)
	letter = lazy.Regexp(`^\S.*\pL|^\pL`)
)

// cause returns the line of standard error that best explains a failure.
func cause(env agent.Env, stderr string) string {
	return tidy(env, telling(toolNoise().ReplaceAllString(stderr, "")))
}

// telling returns the most informative line: the last one with known words.
// Without one, it returns the last one that complains or, failing that, the last
// one.
func telling(s string) string {
	var known, complains, last string
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		level := ""
		if m := logged().FindStringSubmatch(line); m != nil {
			level, line = m[1], m[2]
		}
		text := strings.TrimSpace(line)
		switch {
		case level == "DEBUG" || level == "LOG" || level == "INFO":
		case kindOf(text) != "":
			known = text
		case level == "WARN": // the CLI continues
		case complaint().MatchString(text) && !strings.HasPrefix(line, " "):
			complains = text
		case letter().MatchString(line):
			last = text
		}
	}
	return cmp.Or(known, complains, last)
}

var (
	apiError  = lazy.Regexp(`^\[API Error: ([\s\S]*?)\](\n|$)`)
	jsonWords = lazy.Regexp(`"message":\s*"((?:[^"\\]|\\.)*)"`)
	report    = lazy.Regexp(` ?Full report available at: \S+`)
)

var resetAfter = agent.ResetIn(lazy.Regexp(`(?i)\b(?:reset(?:s)? after|retry in) ((?:\d+h)?(?:\d+m)?(?:\d+(?:\.\d+)?s)?)`))

// tidy returns an error message as one readable line: without the JSON around
// it, without secrets from the environment, and at most 300 characters long.
func tidy(env agent.Env, message string) string {
	if m := apiError().FindStringSubmatch(message); m != nil {
		message = m[1]
	}
	if strings.HasPrefix(strings.TrimSpace(message), "{") {
		if m := jsonWords().FindStringSubmatch(message); m != nil {
			if s, err := strconv.Unquote(`"` + m[1] + `"`); err == nil {
				message = s
			}
		}
	}
	return agent.Line(env, report().ReplaceAllString(message, ""))
}
