package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pollux/internal/companion/journal"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/termtext"
)

// SGR sequences for what commands print on a terminal.
const (
	sgrPlain  = "\x1b[m"
	sgrBold   = "\x1b[1m"
	sgrFaint  = "\x1b[2m"
	sgrRed    = "\x1b[31m"
	sgrGreen  = "\x1b[32m"
	sgrYellow = "\x1b[33m"
	sgrCyan   = "\x1b[36m"
)

// journalStates explains the states of an entry, in the order of the help.
var journalStates = []struct {
	state  journal.State
	colour string
	text   string
}{
	{journal.Open, sgrCyan, "the change is pending"},
	{journal.Accepted, sgrGreen, `you accepted it; "not written" if the file never received the text`},
	{journal.Rejected, sgrRed, "you rejected it"},
	{journal.Closed, sgrYellow, `the agent closed it, usually because you answered in its terminal.
After some seconds the list says how: "accepted in the terminal",
"rejected in the terminal" or "withdrawn by the agent", or else
what the file holds now`},
	{journal.Superseded, sgrFaint, "the agent proposed another change to the file"},
	{journal.Orphaned, sgrYellow, "the agent disconnected, or the editor or Pollux ended, before you decided"},
	{journal.Saved, sgrGreen, "Pollux wrote the file after the agent had ended"},
	{journal.Failed, sgrRed, "no editor and no page could show it"},
	{journal.Replaced, sgrFaint, "not a proposal: a file's text before a restore or an overwrite"},
}

// stateHelp explains the states.
func stateHelp() string {
	var b strings.Builder
	b.WriteString("The states:\n")
	for _, s := range journalStates {
		fmt.Fprintf(&b, "  %-11s %s\n", s.state, strings.ReplaceAll(s.text, "\n", "\n"+strings.Repeat(" ", 14)))
	}
	b.WriteString(`"edited" means that you changed the proposed text.`)
	return b.String()
}

// A journalFilter says which entries to list.
type journalFilter struct {
	file   string
	states []string
	here   bool
}

const (
	filterUnwritten = "unwritten"
	filterEdited    = "edited"
	notWritten      = "not written"
)

// endings are shown in the list instead of "closed".
var endings = map[journal.Ending]struct{ colour, text string }{
	journal.InTerminal: {sgrGreen, "accepted in the terminal"},
	journal.Refused:    {sgrRed, "rejected in the terminal"},
	journal.Withdrawn:  {sgrYellow, "withdrawn by the agent"},
}

// matcher returns a function that reports whether to list an entry.
func (f journalFilter) matcher() (func(journal.Entry) bool, error) {
	valid := []string{filterUnwritten, notWritten, filterEdited}
	for _, s := range journalStates {
		valid = append(valid, string(s.state))
	}
	for _, how := range []journal.Ending{journal.InTerminal, journal.Refused, journal.Withdrawn} {
		valid = append(valid, endings[how].text)
	}
	for _, s := range f.states {
		if !slices.Contains(valid, s) {
			return nil, usageError{fmt.Errorf("unknown --state %s: use %s", termtext.Line(s, 40), strings.Join(valid, ", "))}
		}
	}
	var roots []string
	for _, root := range []struct {
		path string
		set  bool
	}{{f.file, f.file != ""}, {".", f.here}} {
		if !root.set {
			continue
		}
		path, err := filepath.Abs(root.path)
		if err != nil {
			return nil, err
		}
		roots = append(roots, paths.Real(path))
	}
	return func(e journal.Entry) bool {
		for _, root := range roots {
			if !paths.Contains(root, cmp.Or(e.Real, paths.Real(e.Path))) {
				return false
			}
		}
		return len(f.states) == 0 || slices.ContainsFunc(f.states, func(s string) bool {
			return s == string(e.State) || (s == filterUnwritten || s == notWritten) && e.Unwritten ||
				s == filterEdited && e.Edited || s == endings[e.Ending].text
		})
	}, nil
}

// A listing prints entries.
type listing struct {
	out     io.Writer
	colours bool
	dir     string         // the working directory
	unique  map[string]int // by ID: how many characters no other ID starts with
}

func newListing(out io.Writer, colours bool, all []journal.Entry) *listing {
	l := &listing{out: out, colours: colours, unique: make(map[string]int)}
	if dir, err := os.Getwd(); err == nil {
		l.dir = paths.Real(dir)
	}
	// The IDs are sorted, so that the neighbours are the most similar.
	for i, e := range all {
		n := 1
		for _, other := range all[max(0, i-1):min(len(all), i+2)] {
			if other.ID != e.ID {
				n = max(n, common(e.ID, other.ID)+1)
			}
		}
		l.unique[e.ID] = min(n, len(e.ID))
	}
	return l
}

// common returns how many bytes two texts have in common at their start.
func common(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// paint returns a text in a colour, if the listing has colours.
func (l *listing) paint(colour, text string) string {
	if !l.colours || text == "" {
		return text
	}
	return colour + text + sgrPlain
}

// path returns how the list shows a path: relative to the working directory, or short.
func (l *listing) path(e journal.Entry) string {
	for _, path := range []string{e.Real, e.Path} {
		if path != "" && l.dir != "" && paths.Contains(l.dir, path) {
			if rel, err := filepath.Rel(l.dir, path); err == nil {
				return termtext.Visible(rel)
			}
		}
	}
	return termtext.Visible(paths.Short(e.Path))
}

func (l *listing) print(j *journal.Journal, e journal.Entry) {
	n := l.unique[e.ID]
	colour := ""
	for _, s := range journalStates {
		if s.state == e.State {
			colour = s.colour
		}
	}
	note := l.paint(colour, string(e.State))
	if how, ok := endings[e.Ending]; ok {
		note = l.paint(how.colour, how.text)
	} else if e.State == journal.Closed {
		note += ", " + known(j, e)
	}
	if e.Unwritten {
		note += ", " + l.paint(sgrBold+sgrRed, notWritten)
	}
	if e.Edited {
		note += ", edited"
	}
	fmt.Fprintf(l.out, "%s%s  %s  %s  (%s)\n", l.paint(sgrBold+sgrYellow, e.ID[:n]), l.paint(sgrFaint, e.ID[n:]),
		l.paint(sgrFaint, e.Time.Format("2006-01-02 15:04:05")), l.path(e), note)
	if e.Unwritten {
		fmt.Fprintf(l.out, "    pollux journal restore %s\n", e.ID)
	}
}

// known returns what the file tells about a change that the agent closed without an
// answer for Pollux.
func known(j *journal.Journal, e journal.Entry) string {
	switch same, err := j.InFile(e); {
	case err != nil:
		return "the file cannot be read"
	case same:
		return "the file holds this text"
	}
	return "the file does not hold this text"
}

// diffOf returns what a text of an entry changes in its file, as a unified diff. The note
// says what the text was compared with, if that is not the file before the change.
func diffOf(j *journal.Journal, id, text string) (diff, note string, err error) {
	e, err := j.Get(id)
	if err != nil {
		return "", "", err
	}
	before, err := j.Original(id)
	if errors.Is(err, fs.ErrNotExist) {
		note = "the journal does not have the file as it was before: compared with the file on disk"
		var data []byte
		if data, err = disk.ReadFile(cmp.Or(e.Real, e.Path), journal.MaxBytes); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		before = string(data)
		if e.CRLF {
			before = strings.ReplaceAll(before, "\r\n", "\n")
		}
		if e.BOM && !strings.HasPrefix(text, "\uFEFF") {
			before = strings.TrimPrefix(before, "\uFEFF")
		}
	}
	if err != nil {
		return "", "", err
	}
	name := termtext.Line(strings.TrimPrefix(filepath.ToSlash(newListing(nil, false, nil).path(e)), "/"), 0)
	return udiff.Unified("a/"+name, "b/"+name, before, text), note, nil
}

// colouredDiff returns a unified diff in git's colours.
func colouredDiff(diff string) string {
	var b strings.Builder
	header := true
	for line := range strings.Lines(diff) {
		colour := ""
		switch {
		case strings.HasPrefix(line, "@@"):
			colour, header = sgrCyan, false
		case header:
			colour = sgrBold
		case strings.HasPrefix(line, "+"):
			colour = sgrGreen
		case strings.HasPrefix(line, "-"):
			colour = sgrRed
		}
		text := strings.TrimSuffix(line, "\n")
		if colour != "" {
			text = colour + text + sgrPlain
		}
		b.WriteString(text + line[len(strings.TrimSuffix(line, "\n")):])
	}
	return b.String()
}
