package editor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// maxShownOutside limits the lines about changes outside Pollux.
const maxShownOutside = 10

// Describe returns the status for people, in lines that end in line feeds. commands is the
// beginning of the editor's commands, such as ":Pollux "; it is empty in a shell.
func (s Status) Describe(commands string) string {
	var text strings.Builder
	line := func(format string, args ...any) {
		text.WriteString(termtext.Visible(fmt.Sprintf(format, args...)) + "\n")
	}
	start, list := "", "`pollux open`"
	if commands != "" {
		line("Pollux %s", s.Version)
		start, list = "; "+commands+"open starts one", "`"+commands+"list`"
	}
	line("%s  %s", s.Editor.DisplayName, strings.Join(s.Roots, ", "))
	line("  process %d, up %s, %s open", s.PID, Since(s.Started), termtext.Count(s.Files, "file"))
	switch {
	case len(s.Clients) > 0:
	case s.Unconnected != "":
		line("  %s", s.Unconnected)
	default:
		line("  no agent is connected%s; in Gemini CLI, type /ide enable and restart it; in Claude Code and Codex CLI, type /ide", start)
	}
	for _, note := range s.Notes {
		line("  %s", note)
	}
	for _, a := range s.Clients {
		line("  agent %s", a.full())
		if a.Silent != "" {
			line("    %s", a.Silent)
		}
	}
	for _, d := range s.Diffs {
		state := "pending for"
		switch {
		case d.Notice != "":
			state = "cannot be displayed (" + strings.TrimSpace(d.Notice) + "): answer in the agent's terminal; pending for"
		case d.State == StateOrphaned:
			state = "its agent is disconnected; pending for"
		case d.State == StateAccepted:
			state = "accepted; waiting to be written for"
		}
		line("  diff  %s  of %s, %s %s", d.Path, cmp.Or(d.Agent, d.Client, "the agent"), state, Since(d.Opened))
	}
	if note := s.Outside.Note(list); note != "" {
		line("  %s", note)
	}
	for i, f := range s.Outside.Files {
		if i == maxShownOutside {
			line("    and %d more", len(s.Outside.Files)-i)
			break
		}
		line("    %s  %s, noticed %s ago", f.Path, f.Change, Since(f.Since))
	}
	return text.String()
}

// full returns an agent with its version, process, terminal and folder, as far as they are
// known, and what it cannot do.
func (a Agent) full() string {
	text := a.Describe()
	if a.Dir != "" {
		text += " in " + paths.Short(a.Dir)
	}
	text += ", connected for " + Since(a.Since)
	if a.Limits != "" {
		text += "; " + a.Limits
	}
	return text
}

// Since returns the time since ms, in milliseconds since the Unix epoch, for people.
func Since(ms int64) string {
	return time.Since(time.UnixMilli(ms)).Truncate(time.Second).String()
}
