// Package doctor finds out why Gemini CLI and Pollux do not get together.
//
// For the companion it replays what a CLI will do that is started from here:
// which file it reads, which companion it takes, whether that answers. Package
// discovery has the CLI's rules; this package adds why, and what to do. For the
// bridge it tries what the bridge will need, up to a warm process with a
// session, which costs no quota.
//
// A cause is one check with a name that stays, so that scripts can rely on it;
// docs/DOCTOR.md lists them by their symptoms. Nothing is changed but by
// [Report.Mend], and no finding holds a token, or a password of a proxy's.
package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/termtext"
)

// A Status is how a check came out.
type Status string

// A failed check keeps the CLI from its companion, or the bridge from the CLI;
// a warning may, or tells of something that surprises.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// The parts of Pollux that a finding can be about.
const (
	Companion = "companion"
	Bridge    = "bridge"
)

// A Finding is the outcome of one check.
type Finding struct {
	Part   string `json:"part"`
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Text says what is so, in one line; Next what to do about it, as a command
	// where one does it.
	Text string `json:"text"`
	Next string `json:"next,omitempty"`
	// Mends says what [Report.Mend] would change; empty if nothing.
	Mends string `json:"mends,omitempty"`

	mend func() error
}

// A Running is a companion of Pollux's that runs, and whether it is stopped.
type Running struct {
	editor.Status
	Stopped bool
}

// A Config says where the user stands.
type Config struct {
	// Dir is the working directory.
	Dir string
	// Running are the user's companions that have a socket.
	Running []Running
	// Version is Pollux's own.
	Version string
	// Emit is told of each finding as it comes; may be nil.
	Emit func(Finding)
}

// A Report is what [Examine] found.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Count is how many findings have that status.
func (r Report) Count(s Status) (n int) {
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

// Mends lists what Mend would change.
func (r Report) Mends() (all []string) {
	for _, f := range r.Findings {
		if f.mend != nil {
			all = append(all, f.Mends)
		}
	}
	return all
}

// Mend mends what is Pollux's to mend: the user's stale discovery files, modes
// of the files that Pollux writes, and IDE mode in the user's settings.
func (r Report) Mend() error {
	for _, f := range r.Findings {
		if f.mend == nil {
			continue
		}
		if err := f.mend(); err != nil {
			return fmt.Errorf("%s: %w", f.Mends, err)
		}
	}
	return nil
}

// An exam is one run of all checks.
type exam struct {
	Config
	report Report
	part   string

	cli      agent.Program
	cliErr   error
	settings settings.Settings
	place    geminiide.Place
	lookup   geminiide.Lookup
}

// Examine runs all checks. It takes some seconds, most of them for a warm
// process.
func Examine(ctx context.Context, cfg Config) Report {
	e := &exam{Config: cfg}
	e.part = Companion
	e.checkCLI(ctx)
	e.checkNode(ctx)
	e.checkSettings()
	e.checkTerminal()
	e.checkVariables()
	e.checkCompanion(ctx)
	e.checkProxy(ctx)
	e.checkDisk()
	e.part = Bridge
	e.checkBridge(ctx)
	return e.report
}

// maxText bounds a finding's lines in bytes.
const maxText = 1000

func (e *exam) add(f Finding) {
	f.Part = e.part
	// There are names of files and variables in them, which anybody may have made.
	f.Text, f.Next, f.Mends = termtext.Line(f.Text, maxText), termtext.Line(f.Next, maxText), termtext.Line(f.Mends, maxText)
	e.report.Findings = append(e.report.Findings, f)
	if e.Emit != nil {
		e.Emit(f)
	}
}

func (e *exam) ok(check, format string, args ...any) {
	e.add(Finding{Check: check, Status: OK, Text: fmt.Sprintf(format, args...)})
}

func (e *exam) warn(check, next, format string, args ...any) {
	e.add(Finding{Check: check, Status: Warning, Next: next, Text: fmt.Sprintf(format, args...)})
}

func (e *exam) fail(check, next, format string, args ...any) {
	e.add(Finding{Check: check, Status: Failed, Next: next, Text: fmt.Sprintf(format, args...)})
}

// failed reports whether one of the checks failed.
func (e *exam) failed(checks ...string) bool {
	return slices.ContainsFunc(e.report.Findings, func(f Finding) bool {
		return f.Status == Failed && slices.Contains(checks, f.Check)
	})
}

// Print prints a finding for a person.
func Print(w io.Writer, f Finding) {
	word := map[Status]string{OK: "ok", Warning: "WARNING", Failed: "FAILED"}[f.Status]
	fmt.Fprintf(w, "  %-8s %-12s %s\n", word, f.Check, f.Text)
	if f.Next != "" {
		fmt.Fprintf(w, "  %-8s %-12s -> %s\n", "", "", f.Next)
	}
}

// mendHint names the command that mends what Pollux can mend.
const mendHint = "pollux doctor --fix"

func env(key string) string { return os.Getenv(key) }

var bare = regexp.MustCompile(`^[\w@%+=:,./~-]+$`)

// word is a text as one word of a shell's, for a command that is to be pasted.
func word(s string) string {
	s = termtext.Line(s, maxText)
	if bare.MatchString(s) {
		return s
	}
	return termtext.Word(s)
}

// oneLine is a short text of another's, for the middle of a finding.
func oneLine(s string) string { return termtext.Line(s, 300) }
