// Package doctor runs the checks that find out why an agent and Pollux do not
// connect.
//
// It contains the runner, the report, the checks that concern no agent, and the tables of
// causes that several agents share. Each agent and each protocol has its own checks, in a
// package named checks below its package; the command line lists all of them in order. The checks of a protocol
// replay what an agent started here will do: which file it reads, which companion
// it chooses, and whether that companion answers. The checks for the bridge try
// what the bridge needs.
//
// Each cause is one check with a name that never changes, so that scripts can rely
// on it; docs/DOCTOR.md lists the checks by symptoms. Nothing changes without
// [Report.Fix], and no finding holds a token or a proxy's password.
package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
)

// A Status is the outcome of a check.
type Status string

// A failed check keeps the agent from its companion, or the bridge from the agent.
// A warning may do so, or reports something unexpected.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// The names of parts that are about neither an agent nor an editor.
const (
	Companion = "companion" // Gemini CLI; the name is older than the other agents
	Bridge    = "bridge"
	Settings  = "settings" // Pollux's own
	Agents    = "agents"   // which are installed
	Here      = "here"     // the directory
)

// A Finding is the outcome of one check.
type Finding struct {
	Part   string `json:"part"`
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Text says in one line what the check found. Next says what to do about it, as
	// a command if possible.
	Text string `json:"text"`
	Next string `json:"next,omitempty"`
	// Fix says what [Report.Fix] would change; empty if nothing.
	Fix string `json:"fix,omitempty"`
	// Apply makes that change; nil if Fix is empty.
	Apply func() error `json:"-"`
	// Rule is Text without the names and texts that it quotes, for a report to others; it
	// may be empty.
	Rule string `json:"-"`
}

// A Config describes what to examine.
type Config struct {
	// Dir is the working directory.
	Dir string
	// Running lists the user's running companions.
	Running []editor.Running
	// Version is this program's version.
	Version string
	// Overview is set if the user has named nothing to examine.
	Overview bool
	// Done receives each part's findings when it has been examined; may be nil.
	Done func(Part, Report)
}

// A Check examines one thing and adds its findings to the checker. It stops early
// when the context ends.
type Check func(ctx context.Context, c *Checker)

// A Checker collects the findings of one run. A check can see what earlier checks
// found.
type Checker struct {
	Config
	// Program is the agent's command, as the agent's own check found it.
	Program Program

	report Report
	part   string
	none   bool // an agent has no companion here
	// install is the command that installs the part's agent; empty if that is installed.
	install string
}

// A Program is an agent's command as the shell would start it. The zero value
// stands for a command that is not installed.
type Program struct {
	Path string
	// Version is "" if unknown. Major and Minor are its numbers, both 0 if unknown.
	Version      string
	Major, Minor int
	// Update is the command that installs the newest version.
	Update string
}

// A Report holds the findings of [Examine].
type Report struct {
	Findings []Finding `json:"findings"`
	// Versions are the versions of the programs that were found, by part.
	Versions map[string]string `json:"-"`
}

// Count returns how many findings have that status.
func (r Report) Count(s Status) (n int) {
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

// Fixes lists what Fix would change.
func (r Report) Fixes() (all []string) {
	for _, f := range r.Findings {
		if f.Apply != nil && !slices.Contains(all, f.Fix) {
			all = append(all, f.Fix)
		}
	}
	return all
}

// Fix makes the changes that [Report.Fixes] lists. It stops at the first error.
func (r Report) Fix() error {
	for _, f := range r.Findings {
		if f.Apply == nil {
			continue
		}
		if err := f.Apply(); err != nil {
			return fmt.Errorf("%s: %w", f.Fix, err)
		}
	}
	return nil
}

// Examine runs all checks of all parts in order. It takes a few seconds.
func Examine(ctx context.Context, cfg Config, parts []Part) Report {
	c := &Checker{Config: cfg, report: Report{Versions: make(map[string]string)}}
	for _, p := range parts {
		c.part, c.Program, c.install = p.Name, Program{}, ""
		before := len(c.report.Findings)
		for _, check := range p.Checks {
			check(ctx, c)
		}
		if found := c.report.Findings[before:]; c.Done != nil && len(found) > 0 {
			c.Done(p, Report{found, c.report.Versions})
		}
	}
	return c.report
}

// Causes returns how many checks have failed or warned.
func (r Report) Causes() int { return r.Count(Failed) + r.Count(Warning) }

// maxText limits each line of a finding, in bytes.
const maxText = 1000

// Add adds a finding about the part whose checks are running.
func (c *Checker) Add(f Finding) {
	f.Part = c.part
	// Findings quote names of files and variables, which any program may have chosen.
	for _, line := range []*string{&f.Text, &f.Next, &f.Fix} {
		*line = termtext.Line(*line, maxText)
	}
	c.report.Findings = append(c.report.Findings, f)
}

// add adds a finding with a text that quotes the arguments.
func (c *Checker) add(check string, status Status, next, format string, args []any) {
	c.Add(Finding{Check: check, Status: status, Next: next, Text: fmt.Sprintf(format, args...), Rule: rule(format, args)})
}

// OK adds a finding that nothing is wrong.
func (c *Checker) OK(check, format string, args ...any) {
	c.add(check, OK, "", format, args)
}

// Warn adds a warning; next says what to do.
func (c *Checker) Warn(check, next, format string, args ...any) {
	c.add(check, Warning, next, format, args)
}

// Fail adds a failure; next says what to do.
func (c *Checker) Fail(check, next, format string, args ...any) {
	c.add(check, Failed, next, format, args)
}

// Causes returns how many checks have failed or warned so far.
func (c *Checker) Causes() int { return c.report.Causes() }

// Failed reports whether any of these checks has failed.
func (c *Checker) Failed(checks ...string) bool {
	return slices.ContainsFunc(c.report.Findings, func(f Finding) bool {
		return f.Status == Failed && slices.Contains(checks, f.Check)
	})
}

// Reported reports whether the check has a finding, of any status.
func (c *Checker) Reported(check string) bool {
	return slices.ContainsFunc(c.report.Findings, func(f Finding) bool { return f.Check == check })
}

// FoundVersion records the version of the program that the part is about.
func (c *Checker) FoundVersion(version string) { c.report.Versions[c.part] = version }

// RunningHere returns a running companion for the directory, or nil.
func (c *Checker) RunningHere() *editor.Running {
	for i, r := range c.Running {
		if slices.ContainsFunc(r.Roots, func(root string) bool { return paths.Contains(root, c.Dir) }) {
			return &c.Running[i]
		}
	}
	return nil
}

// Print prints a finding for a person.
func Print(w io.Writer, f Finding) {
	word := map[Status]string{OK: "ok", Warning: "WARNING", Failed: "FAILED"}[f.Status]
	fmt.Fprintf(w, "  %-8s %-12s %s\n", word, f.Check, f.Text)
	if f.Next != "" {
		fmt.Fprintf(w, "  %-8s %-12s -> %s\n", "", "", f.Next)
	}
}

// Print prints a part and its findings, the worst first; only what is wrong if all is not set.
func (p Part) Print(w io.Writer, r Report, all bool) {
	fmt.Fprintf(w, "\n%s\n", p.title(r))
	for _, s := range []Status{Failed, Warning, OK} {
		for _, f := range r.Findings {
			if f.Status == s && (all || s != OK) {
				Print(w, f)
			}
		}
	}
}

// PrintLine prints one line about a part in which nothing is wrong.
func (p Part) PrintLine(w io.Writer, r Report) {
	line := p.title(r)
	for _, check := range sums {
		if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == check }); i >= 0 {
			line += ": " + r.Findings[i].Text
			break
		}
	}
	fmt.Fprintf(w, "  %-8s %s\n", "ok", line)
}

// sums are the checks that say in one line how a healthy part works, the most important
// first.
var sums = []string{"companion", "port", "ide", "plugin", "installed", "agents", "disk"}

// title returns the part's heading with the version of the program, if it is known.
func (p Part) title(r Report) string {
	if v := r.Versions[p.Name]; v != "" {
		return p.Heading + " " + Short(v)
	}
	return p.Heading
}

// FixCommand is the command that makes the changes of [Report.Fix].
const FixCommand = "pollux doctor --fix"

// Word returns a text as one word of a command that the user can paste.
func Word(s string) string { return shell.Quote(termtext.Line(s, maxText)) }

// Short returns an untrusted text in one short line, to quote in a finding.
func Short(s string) string { return termtext.Line(s, 300) }

// Reason returns an error's text without the path.
func Reason(err error) string {
	return Short(strings.TrimSpace(disk.Cause(err).Error()))
}
