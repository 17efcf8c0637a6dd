package agent

import "fmt"

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
type remedy struct{ what, Next string }

var Remedies = map[Kind]remedy{
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
	r := Remedies[e.Kind]
	what := r.what
	if e.Message != "" {
		what += " (" + e.Message + ")"
	} else if e.Exit != 0 {
		what += fmt.Sprintf(" (exit code %d)", e.Exit)
	}
	return what + ": " + r.Next
}
