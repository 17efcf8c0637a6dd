package agent

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"pollux/internal/lazy"
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
	Locked        Kind = "locked"
	Crashed       Kind = "crashed"
	Failed        Kind = "failed"
)

// Overload reports whether another model may answer where this one did not.
func (k Kind) Overload() bool { return k == QuotaMinute || k == QuotaDay || k == Capacity }

// BeforePrompt reports whether a failure of this kind always precedes the prompt, so that the
// agent cannot have received it.
func (k Kind) BeforePrompt() bool {
	return k == NotInstalled || k == TooOld || k == NoVersion || k == Unlinked
}

// A Remedy describes a kind of failure: what failed, and the next step to take.
type Remedy struct{ What, Next string }

// remedies apply to every agent. An agent's package overrides those that it can
// describe better.
var remedies = map[Kind]Remedy{
	NotInstalled:  {"the agent is not installed", "install it"},
	TooOld:        {"this version of the agent is too old to be enforced read-only", "update it"},
	NoVersion:     {"the agent does not report its version, so Pollux does not use it", "run it with --version in a terminal to see what it prints"},
	Unenforceable: {"the agent cannot be enforced read-only here", "check its policies"},
	Strayed:       {"the agent used a tool that the policy denies, and was stopped", "check what it changed, and update it"},
	SearchQuota:   {"the quota of the web search is used up", "ask without web search, or wait until tomorrow"},
	Auth:          {"the agent is not signed in", "start it once in a terminal and sign in"},
	Unlinked:      {"the agent has no credentials in change mode, because Pollux cannot link to yours and does not copy them", "allow symbolic links"},
	TierEnded:     {"the service no longer supports this account", "use another account or a paid plan"},
	Untrusted:     {"the agent does not trust this folder", "start it in this folder once and trust the folder"},
	Settings:      {"the agent's settings are invalid", "correct the file that it names"},
	QuotaMinute:   {"the model's quota per minute is used up", "wait a minute, or name another model"},
	QuotaDay:      {"the model's quota for today is used up", "name another model, or wait until tomorrow"},
	Capacity:      {"the model is overloaded", "try again later, or name another model"},
	BadModel:      {"there is no such model", "check the name, or leave the model out"},
	TooLong:       {"the prompt is too long for the model", "send less: fewer or smaller files"},
	BadRequest:    {"the model's service refused the request", "change the prompt or the model"},
	Blocked:       {"the model's safety settings blocked the answer", "rephrase the question"},
	Empty:         {"the model gave no answer", "try again, or rephrase the question"},
	TurnLimit:     {"the agent reached its limit of turns", "ask for less at a time"},
	Network:       {"the model's service cannot be reached", "check the network and the proxy variables"},
	Stalled:       {"the agent stopped making progress", "try again"},
	TooMuchOutput: {"the agent's output did not end", "ask for less at a time"},
	Locked:        {"another process holds a lock of the agent", "try again in a minute"},
	Crashed:       {"the agent ended without a result", "try again"},
	Failed:        {"the agent failed", "try again"},
}

// Kinds returns all kinds of failures, in no particular order.
func Kinds() []Kind { return slices.Collect(maps.Keys(remedies)) }

// An Error is a failure of an agent. Its text says what failed, what the agent
// reported, and the next step to take.
type Error struct {
	Kind Kind
	// Message is the agent's error message, in one line, without secrets. It may
	// be empty.
	Message string
	// Exit is the exit code of an agent that ended on its own.
	Exit int
	// Remedy describes the failure in terms of this agent. If it is empty, the
	// text applies to any agent.
	Remedy Remedy
}

func (e *Error) Error() string { return e.What() + ": " + e.Next() }

// What says what failed, and what the agent reported.
func (e *Error) What() string {
	what := e.remedy().What
	if e.Message != "" {
		what += " (" + e.Message + ")"
	} else if e.Exit != 0 {
		what += fmt.Sprintf(" (exit code %d)", e.Exit)
	}
	return what
}

// Next is the next step to take.
func (e *Error) Next() string { return e.remedy().Next }

func (e *Error) remedy() Remedy {
	if e.Remedy == (Remedy{}) {
		return remedies[e.Kind]
	}
	return e.Remedy
}

// Remedies describe failures in terms of an agent.
type Remedies map[Kind]Remedy

// Error returns an error with the agent's remedy.
func (r Remedies) Error(kind Kind, message string) *Error {
	return &Error{Kind: kind, Message: message, Remedy: r[kind]}
}

// Line returns an error message as one readable line, at most 300 characters
// long. It removes the secrets of the environment and of this process.
func Line(env Env, message string) string {
	message = strings.Join(strings.Fields(scrub(env, message)), " ")
	return strings.TrimRight(Shorten(message, 300), ". ")
}

// Summary returns a text as one short line, for [ToolUse].
func Summary(text string) string { return Shorten(strings.Join(strings.Fields(text), " "), 60) }

// Shorten cuts a text to n characters.
func Shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

var (
	secretName = lazy.Regexp(`(?i)(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIALS|HEADERS|BEDROCK)$`)
	queryKey   = lazy.Regexp(`([?&](?:key|token|access_token)=)[^&\s"]+`)
)

// scrub removes secrets from a text: keys in URLs, and the values of variables
// whose names suggest a secret, in the environment and in that of this process.
func scrub(env Env, text string) string {
	var secrets []string
	for _, kv := range append(os.Environ(), env...) {
		name, value, _ := strings.Cut(kv, "=")
		if len(value) >= 8 && secretName().MatchString(name) {
			secrets = append(secrets, value)
		}
	}
	// A secret may start with another one.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return queryKey().ReplaceAllString(text, "${1}***")
}
