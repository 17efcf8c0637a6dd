package agent

import (
	"regexp"
	"time"
)

// An Explainer says what an agent's messages mean, and what users can do about them.
type Explainer struct {
	// VarPrefix begins the names of the bridge's variables for this agent, such as "GEMINI_".
	VarPrefix string
	// ToolVerbs describe the use of a tool in progress reports, such as
	// "reading". A tool that is not listed is reported by its name.
	ToolVerbs map[string]string
	// Account identifies the account whose quota the requests from an environment
	// in a workspace use. It is a hash that reveals nothing. Account reads files.
	Account func(env Env, dir string) string
	// Remedies describe failures in terms of this agent.
	Remedies Remedies
	// Tidy returns an error message as one readable line, without secrets from the
	// environment.
	Tidy func(env Env, message string) string
	// KindOf classifies an error message by its words. It returns "" for an
	// unknown one.
	KindOf func(message string) Kind
	// ResetAfter returns the time until a quota is renewed, according to an error
	// message, or 0 if the message does not say. It may be nil.
	ResetAfter func(message string) time.Duration
	// Cause returns the line of standard error that best explains a failure, or
	// "".
	Cause func(env Env, stderr string) string
}

// ResetIn returns a function for [Explainer.ResetAfter]. The first group of the pattern matches
// the time, such as 12h34m56s.
func ResetIn(pattern func() *regexp.Regexp) func(message string) time.Duration {
	return func(message string) (d time.Duration) {
		if m := pattern().FindStringSubmatch(message); m != nil {
			d, _ = time.ParseDuration(m[1])
		}
		return d
	}
}

// Error returns an error with the agent's remedy.
func (e *Explainer) Error(kind Kind, message string) *Error { return e.Remedies.Error(kind, message) }

// Phrases classify error messages by their words, the most specific first.
type Phrases []struct {
	Kind Kind
	Text func() *regexp.Regexp
}

// KindOf returns the kind of failure that a message describes, or "".
func (all Phrases) KindOf(message string) Kind {
	for _, p := range all {
		if p.Text().MatchString(message) {
			return p.Kind
		}
	}
	return ""
}
