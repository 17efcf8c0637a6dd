package gemini

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// A Kind is a class of failure, by what the user can do about it.
type Kind string

const (
	NotInstalled  Kind = "not installed"
	TooOld        Kind = "too old"
	NoVersion     Kind = "unknown version"
	Unenforceable Kind = "not read-only"
	Strayed       Kind = "strayed"
	SearchQuota   Kind = "search quota"
	Auth          Kind = "auth"
	Unlinked      Kind = "credentials not linked"
	TierEnded     Kind = "tier ended"
	Untrusted     Kind = "untrusted folder"
	Settings      Kind = "settings"
	QuotaMinute   Kind = "quota per minute"
	QuotaDay      Kind = "quota per day"
	Capacity      Kind = "capacity"
	BadModel      Kind = "bad model"
	TooLong       Kind = "prompt too long"
	BadRequest    Kind = "bad request"
	Blocked       Kind = "blocked"
	Empty         Kind = "empty answer"
	TurnLimit     Kind = "turn limit"
	Network       Kind = "network"
	Stalled       Kind = "stalled"
	TooMuchOutput Kind = "too much output"
	Crashed       Kind = "crashed"
	Failed        Kind = "failed"
)

// Overload reports whether another model may answer where this one did not.
func (k Kind) Overload() bool { return k == QuotaMinute || k == QuotaDay || k == Capacity }

// A remedy is what a kind of failure is called, and the next step.
type remedy struct{ what, next string }

var remedies = map[Kind]remedy{
	NotInstalled:  {"Gemini CLI is not installed", "install it with `npm install -g @google/gemini-cli`, or set GEMINI_CLI_PATH to it"},
	TooOld:        {"this Gemini CLI is too old to be held to reading", "update it with `npm install -g @google/gemini-cli@latest` (0.35 or newer)"},
	NoVersion:     {"this Gemini CLI does not say its version, so Pollux does not use it", "run it with --version in a terminal to see what it prints, or set GEMINI_CLI_PATH to Gemini CLI itself and not to a wrapper"},
	Unenforceable: {"Gemini CLI cannot be held to reading here", "ask the administrator to take allowing rules out of the system's policies"},
	Strayed:       {"Gemini CLI used a tool that the policy denies, and was ended", "look at what changed, and update Gemini CLI"},
	SearchQuota:   {"the quota of the web search is used up", "ask without the web, or wait until tomorrow"},
	Auth:          {"Gemini CLI is not signed in", "run `gemini` once in a terminal and sign in, or set GEMINI_API_KEY where the MCP client starts Pollux"},
	Unlinked:      {"Gemini CLI has no credentials in change mode, because Pollux cannot link to yours and does not copy them", "allow symbolic links (on Windows: turn on Developer Mode), or set GEMINI_API_KEY or GEMINI_RUNNER=spawn where the MCP client starts Pollux"},
	TierEnded:     {"Google no longer serves this account's tier in Gemini CLI", "use a Gemini API key (GEMINI_API_KEY) or a paid plan"},
	Untrusted:     {"Gemini CLI does not trust this folder", "run `gemini` in it once and trust it, or set GEMINI_CLI_TRUST_WORKSPACE=true where the MCP client starts Pollux; the CLI then runs the folder's own hooks and reads its .env"},
	Settings:      {"Gemini CLI's settings are broken", "correct the file it names"},
	QuotaMinute:   {"the model's quota per minute is used up", "wait a minute, or name another model"},
	QuotaDay:      {"the model's quota for today is used up", "name another model, or wait until tomorrow"},
	Capacity:      {"the model is overloaded", "try again later, or name another model"},
	BadModel:      {"there is no such model", "check the name, or leave the model out"},
	TooLong:       {"the prompt is too long for the model", "send less: fewer or smaller files"},
	BadRequest:    {"the model's service refused the request", "change the prompt or the model"},
	Blocked:       {"the model's safety settings blocked the answer", "put the question differently"},
	Empty:         {"the model gave no answer", "try again, or put the question differently"},
	TurnLimit:     {"Gemini CLI reached its limit of turns", "ask for less at once, or raise model.maxSessionTurns in its settings"},
	Network:       {"the model's service cannot be reached", "check the network and the proxy variables"},
	Stalled:       {"Gemini CLI stopped making progress", "run `gemini` in a terminal to see whether it waits for a sign-in, then try again"},
	TooMuchOutput: {"Gemini CLI printed without end", "ask for less at once"},
	Crashed:       {"Gemini CLI ended without a result", "try again; if it stays, run `gemini -p hello` in a terminal"},
	Failed:        {"Gemini CLI failed", "run `gemini -p hello` in a terminal to see more"},
}

// An Error is a failure of the CLI. Its text says what happened, what the CLI
// said, and the next step to take.
type Error struct {
	Kind Kind
	// Message is the CLI's own, in one line, without secrets; it may be empty.
	Message string
	// Exit is the CLI's exit code where it ended by itself.
	Exit int
}

func (e *Error) Error() string {
	r := remedies[e.Kind]
	what := r.what
	if e.Message != "" {
		what += " (" + e.Message + ")"
	} else if e.Exit != 0 {
		what += fmt.Sprintf(" (exit code %d)", e.Exit)
	}
	return what + ": " + r.next
}

// exits are the CLI's exit codes that have a meaning of their own. Others are
// an HTTP status modulo 256, or nothing.
var exits = map[int]Kind{
	41: Auth, 42: BadRequest, 52: Settings, 53: TurnLimit, 55: Untrusted,
	429 % 256: QuotaMinute, 400 % 256: BadRequest, 401 % 256: Auth, 403 % 256: Auth,
	500 % 256: Capacity, 502 % 256: Capacity, 503 % 256: Capacity, 504 % 256: Capacity,
}

// policyIgnored is what the CLI says when it does not follow a policy that it
// is given.
var policyIgnored = regexp.MustCompile(`Ignoring --admin-policy|Failed to read policy|Policy file error`)

// phrases tell errors apart by their words, the most telling first.
var phrases = []struct {
	kind Kind
	re   *regexp.Regexp
}{
	{Unenforceable, policyIgnored},
	{TooOld, regexp.MustCompile(`(?i)\bunknown arguments?: .*(policy|output-format|allowed-mcp)|Invalid values:[\s\S]*stream-json`)},
	{Untrusted, regexp.MustCompile(`not running in a trusted directory`)},
	{TierEnded, regexp.MustCompile(`(?i)\bIneligibleTierError\b|\bUNSUPPORTED_CLIENT\b|\b(consumer|free|individual)s?\b[^.\n]{0,60}\b(tier|accounts?|plans?)\b[^.\n]{0,60}\b(no longer|ended|discontinued|retired)\b`)},
	{Settings, regexp.MustCompile(`Please fix the configuration`)},
	{BadModel, regexp.MustCompile(`\bModelNotFoundError\b|\bis not found for API version\b|(?i)\bmodel\b[^.\n]{0,80}\bnot found\b`)},
	{QuotaDay, regexp.MustCompile(`(?i)\bdaily quota\b|\bRequestsPerDay|\bTerminalQuotaError\b|\bquota will reset after \d+h`)},
	{QuotaMinute, regexp.MustCompile(`\bRESOURCE_EXHAUSTED\b|(?i)\bexceeded your current quota\b|\bexhausted your capacity\b|\bquota exceeded\b|\brate limit exceeded\b|\btoo many requests\b|\b(status|code|error)"?:? ?429\b|\b429 (error|too many)`)},
	{Capacity, regexp.MustCompile(`\bUNAVAILABLE\b|(?i)\bmodel is overloaded\b|\bno capacity available\b|\b(status|code)"?:? ?5\d\d\b|"status":"INTERNAL"`)},
	{Auth, regexp.MustCompile(`\bUNAUTHENTICATED\b|\bPERMISSION_DENIED\b|\bAPI_KEY_INVALID\b|\bFatalAuthenticationError\b|(?i)\bAPI key not valid\b|\binvalid authentication credentials\b|\bset an Auth method\b|\bmust specify the GEMINI_API_KEY\b|\berror authenticating\b|\b(status|code)"?:? ?40[13]\b`)},
	{TooLong, regexp.MustCompile(`(?i)\bexceeds the maximum number of tokens\b|\btoken count\b[^.\n]{0,60}\bexceeds\b`)},
	{Blocked, regexp.MustCompile(`(?i)\bblocked due to\b|\bPROHIBITED_CONTENT\b|\bfinish ?reason:? (SAFETY|RECITATION)\b`)},
	{Empty, regexp.MustCompile(`(?i)\bempty response\b|\bno text or thoughts\b|\bmalformed function call\b`)},
	{TurnLimit, regexp.MustCompile(`\bFatalTurnLimitedError\b|\bmax session turns\b`)},
	{Network, regexp.MustCompile(`(?i)\bfetch failed\b|\bENOTFOUND\b|\bECONNREFUSED\b|\bECONNRESET\b|\bETIMEDOUT\b|\bEAI_AGAIN\b|\bAPI Error: terminated\b|\bsocket hang up\b|\bself.signed certificate\b|\bUNABLE_TO_VERIFY_LEAF_SIGNATURE\b`)},
	{BadRequest, regexp.MustCompile(`\bINVALID_ARGUMENT\b`)},
}

// kindOf tells by its words what kind of failure a message is, or "".
func kindOf(message string) Kind {
	for _, p := range phrases {
		if p.re.MatchString(message) {
			return p.kind
		}
	}
	return ""
}

// classify names the failure of a run that ended by itself: by the messages of
// the error and result events, then the exit code, then standard error.
func classify(exit int, message, stderr string) *Error {
	kind := kindOf(message)
	// A 400 is many things, of which its words may tell more.
	if k := exits[exit]; k != "" && (kind == "" || k == Untrusted || k == TurnLimit) {
		kind = k
	}
	words := toolNoise.ReplaceAllString(stderr, "")
	if kind == "" || kind == BadRequest && message == "" {
		if k := kindOf(words); k != "" {
			kind = k
		}
	}
	if message == "" {
		message = telling(words)
	}
	switch {
	case kind != "":
	case message == "":
		kind = Crashed
	default:
		kind = Failed
	}
	return &Error{Kind: kind, Message: tidy(message), Exit: exit}
}

// toolNoise are lines of standard error that say nothing of why a run ended;
// some quote files or the model.
var toolNoise = regexp.MustCompile(`(?m)^(Error executing tool .*|\[STARTUP\] .*|YOLO mode .*|Loaded cached credentials.*|\(node:\d+\) .*|\(Use .node --trace.*|    at .*|Warning: .*|WARNING: .*|Ripgrep is not available.*)$\n?`)

var (
	complaint = regexp.MustCompile(`(?i)error\b|exception\b|\b(fail|failed|cannot|could not|must|not|killed|denied|refused)\b`)
	// logged is a line of the CLI's own log, which it writes to standard error.
	logged = regexp.MustCompile(`^\[[^\]]*\] \[(DEBUG|LOG|INFO|WARN|ERROR)\] ?(.*)`)
	letter = regexp.MustCompile(`^\S.*\pL|^\pL`)
)

// telling returns the line of standard error that says most of a failure: the last
// one with words that are known, else the last that complains, else the last.
func telling(s string) string {
	var known, complains, last string
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		level := ""
		if m := logged.FindStringSubmatch(line); m != nil {
			level, line = m[1], m[2]
		}
		text := strings.TrimSpace(line)
		switch {
		case level == "DEBUG" || level == "LOG" || level == "INFO":
		case kindOf(text) != "":
			known = text
		case level == "WARN": // it goes on
		case complaint.MatchString(text) && !strings.HasPrefix(line, " "):
			complains = text
		case letter.MatchString(line):
			last = text
		}
	}
	return cmp.Or(known, complains, last)
}

var (
	apiError  = regexp.MustCompile(`^\[API Error: ([\s\S]*?)\](\n|$)`)
	jsonWords = regexp.MustCompile(`"message":\s*"((?:[^"\\]|\\.)*)"`)
	report    = regexp.MustCompile(` ?Full report available at: \S+`)
	queryKey  = regexp.MustCompile(`([?&](?:key|token|access_token)=)[^&\s"]+`)
)

// tidy makes one readable line of an error's text: without the JSON around it,
// without secrets, at most 300 characters.
func tidy(message string) string {
	if m := apiError.FindStringSubmatch(message); m != nil {
		message = m[1]
	}
	if strings.HasPrefix(strings.TrimSpace(message), "{") {
		if m := jsonWords.FindStringSubmatch(message); m != nil {
			if s, err := strconv.Unquote(`"` + m[1] + `"`); err == nil {
				message = s
			}
		}
	}
	message = report.ReplaceAllString(message, "")
	message = strings.Join(strings.Fields(scrub(message)), " ")
	return strings.TrimRight(shorten(message, 300), ". ")
}

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

var secretName = regexp.MustCompile(`(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$`)

// scrub takes secrets out of a text: the values of variables that are named
// like one, and keys in addresses.
func scrub(text string) string {
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if len(value) >= 8 && secretName.MatchString(name) {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return queryKey.ReplaceAllString(text, "${1}***")
}
