package codex

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// A turnError is the server's description of a failure.
type turnError struct {
	Message string          `json:"message"`
	Details string          `json:"additionalDetails"`
	Info    json.RawMessage `json:"codexErrorInfo"`
}

// Codes of [agent.Refused] that are no HTTP status.
const (
	unenforced   = -1
	unauthorized = http.StatusUnauthorized
)

// infos are the server's names for failures, as HTTP statuses.
var infos = map[string]int{
	"unauthorized": unauthorized, "badRequest": http.StatusBadRequest, "modelNotFound": http.StatusNotFound,
	"contextWindowExceeded": http.StatusRequestEntityTooLarge, "usageLimitExceeded": http.StatusPaymentRequired,
	"sessionBudgetExceeded": http.StatusPaymentRequired, "rateLimitExceeded": http.StatusTooManyRequests,
	"serverOverloaded": http.StatusServiceUnavailable, "flexUnavailable": http.StatusServiceUnavailable,
	"policyCapacityUnavailable": http.StatusServiceUnavailable, "internalServerError": http.StatusInternalServerError,
	"cyberPolicy": http.StatusUnavailableForLegalReasons, "misalignmentPolicyViolation": http.StatusUnavailableForLegalReasons,
	"inferenceHookDenied": http.StatusUnavailableForLegalReasons,
}

var kinds = map[int]agent.Kind{
	unenforced: agent.Unenforceable, 400: agent.BadRequest, 401: agent.Auth, 402: agent.QuotaDay, 403: agent.Auth, 404: agent.BadModel,
	413: agent.TooLong, 429: agent.QuotaMinute, 451: agent.Blocked,
	500: agent.Capacity, 502: agent.Capacity, 503: agent.Capacity, 504: agent.Capacity,
}

// status returns the HTTP status of a failure, or 0 if it has none.
func (e *turnError) status() int {
	var name string
	if json.Unmarshal(e.Info, &name) == nil {
		return infos[name]
	}
	var info map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	json.Unmarshal(e.Info, &info)
	for _, i := range info {
		return i.Status
	}
	return 0
}

func (e *turnError) refused() *agent.Refused {
	return &agent.Refused{Code: e.status(), Message: e.Message}
}

// retry describes the n-th retry of a request to the model.
func (e *turnError) retry(n int) *agent.Retry {
	message := cmp.Or(e.Details, e.Message)
	return &agent.Retry{
		Attempt: n, Wait: firstPause << min(n-1, 10), Message: message,
		Kind: cmp.Or(kinds[e.status()], kindOf(message), agent.Capacity),
	}
}

// failure classifies an error response by its code, then by its words.
func failure(env agent.Env, code int, message string, _ []string) *agent.Error {
	kind := cmp.Or(kinds[code], kindOf(message))
	if kind == "" && strings.HasPrefix(strings.TrimSpace(message), "{") { // the body of a status 400
		kind = agent.BadRequest
	}
	return fault(cmp.Or(kind, agent.Failed), tidy(env, message))
}

// phrases classify errors by their words, the most specific first.
var phrases = agent.Phrases{
	{agent.Unenforceable, lazy.Regexp(`\bbwrap: |\bsandbox helper failed\b`)},
	{agent.Settings, lazy.Regexp(`(?i)\bfailed to (?:load|read) configuration\b|\berror loading config|\bfailed to parse.*config`)},
	{agent.TooLong, lazy.Regexp(`(?i)\bexceeds the maximum length\b|\bcontext window\b`)},
	{agent.QuotaDay, lazy.Regexp(`(?i)\busage limit\b|\bquota exceeded\b|\binsufficient_quota\b`)},
	{agent.QuotaMinute, lazy.Regexp(`(?i)\brate limit\b|\b429 too many requests\b`)},
	{agent.Auth, lazy.Regexp(`(?i)\bnot logged in\b|\bstatus 40[13]\b|\bMissing environment variable\b|\binvalid_api_key\b|\blog out and sign in\b`)},
	{agent.BadModel, lazy.Regexp(`(?i)\bmodel\b[^.\n]{0,80}\b(does not exist|not supported|not found)\b`)},
	{agent.Capacity, lazy.Regexp(`(?i)\bhigh demand\b|\bat capacity\b|\boverloaded\b|\bstatus 5\d\d\b`)},
	{agent.Network, lazy.Regexp(`(?i)\bConnection failed\b|\berror sending request\b|\bstream disconnected\b`)},
	{agent.BadRequest, lazy.Regexp(`\binvalid_request_error\b`)},
}

// kindOf returns the kind of failure that a message describes, or "".
func kindOf(message string) agent.Kind { return phrases.KindOf(message) }

var address = lazy.Regexp(`, url: \S+`)

// tidy returns an error message as one readable line: without the JSON around it and without
// secrets from the environment.
func tidy(env agent.Env, message string) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(message), &body) == nil && body.Error.Message != "" {
		message = body.Error.Message
	}
	return agent.Line(env, address().ReplaceAllString(message, ""))
}

var (
	renewedIn = lazy.Regexp(`(?i)\btry again in (?:(\d+) days?)? ?(?:(\d+) hours?)? ?(?:(\d+) minutes?)?`)
	renewedAt = lazy.Regexp(`(?i)\btry again at (?:(\w{3} \d+)\w\w, (\d{4}) )?(\d+:\d\d [AP]M)`)
)

// resetAfter returns the time until a quota is renewed, or 0.
func resetAfter(message string) time.Duration { return resetFrom(time.Now(), message) }

func resetFrom(now time.Time, message string) time.Duration {
	if m := renewedIn().FindStringSubmatch(message); m != nil {
		days, _ := strconv.Atoi(m[1])
		hours, _ := strconv.Atoi(m[2])
		minutes, _ := strconv.Atoi(m[3])
		return time.Duration((days*24+hours)*60+minutes) * time.Minute
	}
	m := renewedAt().FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	day := now.Format("Jan 2 2006")
	if m[1] != "" {
		day = m[1] + " " + m[2]
	}
	at, err := time.ParseInLocation("Jan 2 2006 3:04 PM", day+" "+strings.ToUpper(m[3]), now.Location())
	if err != nil {
		return 0
	}
	if m[1] == "" && at.Before(now) {
		at = at.AddDate(0, 0, 1)
	}
	return max(at.Sub(now), 0)
}

var colors = lazy.Regexp(`\x1b\[[0-9;]*m`)

// cause returns the last line of standard error that complains.
func cause(env agent.Env, stderr string) string {
	var last string
	for line := range strings.Lines(colors().ReplaceAllString(stderr, "")) {
		if strings.Contains(strings.ToLower(line), "error") && !strings.Contains(line, "bubblewrap") {
			last = line
		}
	}
	return tidy(env, last)
}
