package doctor

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent/agenttest"
	"pollux/internal/editor"
)

// Without arguments, what is not installed is left out, and agents are listed. What is in
// the arguments is always examined.
func TestSelect(t *testing.T) {
	for name, tt := range map[string]struct {
		args, here, want []string
		last             string // the text of the last finding
		status           Status
		fails            bool
	}{
		"all are here":       {here: []string{"one", "two", "vim"}, want: []string{"one", "two", "vim", Here}},
		"the first is away":  {here: []string{"two"}, want: []string{"two", Here, Agents}, last: "not installed: Agent one", status: OK},
		"the last is away":   {here: []string{"one"}, want: []string{"one", Here, Agents}, last: "not installed: Agent two", status: OK},
		"no agent is here":   {here: []string{"vim"}, want: []string{Agents}, last: "no agent is installed: Pollux works with Agent one, Agent two", status: Failed},
		"named":              {args: []string{"two"}, here: []string{"one"}, want: []string{"two"}},
		"an editor, named":   {args: []string{"vim"}, want: []string{"vim"}},
		"both named":         {args: []string{"two", "1"}, want: []string{"one", "two"}},
		"unknown":            {args: []string{"1", "three"}, fails: true},
		"the name of a part": {args: []string{"one"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			here := func(name string) func() bool { return func() bool { return slices.Contains(tt.here, name) } }
			parts, err := Select([]Part{
				{Name: "one", Arg: "1", Heading: "Agent one", Agent: true, Here: here("one")},
				{Name: "two", Arg: "two", Heading: "Agent two", Agent: true, Here: here("two")},
				{Name: "vim", Arg: "vim", Heading: "Vim", Here: here("vim")},
			}, tt.args)
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			var got []string
			for _, p := range parts {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("selected %q, want %q", got, tt.want)
			}
			if tt.last == "" {
				return
			}
			report := Examine(t.Context(), Config{}, parts)
			if last := report.Findings[len(report.Findings)-1]; last.Text != tt.last || last.Status != tt.status {
				t.Errorf("found %+v, want %q", last, tt.last)
			}
		})
	}
}

// Of an agent that finds no companion, an overview makes one warning about the directory,
// and none about each agent. For an agent that was named, it is a failure.
func TestNone(t *testing.T) {
	none := func(_ context.Context, c *Checker) { c.None("x") }
	agents := []Part{
		{Name: "one", Arg: "one", Heading: "One", Agent: true, Here: func() bool { return true }, Checks: []Check{none}},
		{Name: "two", Arg: "two", Heading: "Two", Agent: true, Here: func() bool { return true }, Checks: []Check{none}},
	}
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"overview": {nil, []string{"one/companion ok", "two/companion ok", "here/disk ok", "here/companion warning"}},
		"named":    {[]string{"two"}, []string{"two/companion failed"}},
	} {
		parts, err := Select(agents, tt.args)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range Examine(t.Context(), Config{Dir: "/x", Overview: len(tt.args) == 0}, parts).Findings {
			got = append(got, f.Part+"/"+f.Check+" "+string(f.Status))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %q, want %q", name, got, tt.want)
		}
	}
}

// The next step for a missing agent began with `pollux run`, which cannot start it.
func TestNoneWithoutAgent(t *testing.T) {
	missing := func(_ context.Context, c *Checker) { c.NotInstalled("One", "one", "npm install one") }
	none := func(_ context.Context, c *Checker) { c.None("x") }
	parts := []Part{{Name: "one", Checks: []Check{missing, none}}, {Name: "two", Checks: []Check{none}}}
	here := editor.Running{Status: editor.Status{Editor: editor.Info{DisplayName: "Vim"}, Roots: []string{"/x"}}}
	for name, tt := range map[string]struct {
		running    []editor.Running
		text, next string
	}{
		"none":                  {nil, "no companion is running for /x", StartWith("x")},
		"one that is not found": {[]editor.Running{here}, "the companion of Vim is running for this folder, but x does not find it", "restart that companion"},
	} {
		t.Run(name, func(t *testing.T) {
			all := Examine(t.Context(), Config{Dir: "/x", Running: tt.running}, parts).Findings
			for i, want := range []string{"npm install one", "npm install one, then " + tt.next, tt.next} {
				if all[i].Next != want {
					t.Errorf("finding %d: next is %q, want %q", i, all[i].Next, want)
				}
			}
			if all[2].Text != tt.text {
				t.Errorf("found %q, want %q", all[2].Text, tt.text)
			}
		})
	}
}

// A part without causes takes one line; otherwise the worst cause comes first.
func TestPrint(t *testing.T) {
	p := Part{Name: "x", Heading: "Agent"}
	versions := map[string]string{"x": "1.2.3"}
	well := Report{Versions: versions, Findings: []Finding{
		{Check: "cli", Status: OK, Text: "Agent 1.2.3 (/bin/x)"}, {Check: "port", Status: OK, Text: "Pollux answers"},
	}}
	ill := Report{Findings: []Finding{
		{Check: "a", Status: OK, Text: "fine"}, {Check: "b", Status: Warning, Text: "odd", Next: "look"}, {Check: "c", Status: Failed, Text: "bad"},
	}}
	var line, causes, all strings.Builder
	p.PrintLine(&line, well)
	p.Print(&causes, ill, false)
	p.Print(&all, ill, true)
	for got, want := range map[string]string{
		line.String():   "  ok       Agent 1.2.3: Pollux answers\n",
		causes.String(): "\nAgent\n  FAILED   c            bad\n  WARNING  b            odd\n                        -> look\n",
		all.String(): "\nAgent\n  FAILED   c            bad\n  WARNING  b            odd\n                        -> look\n" +
			"  ok       a            fine\n",
	} {
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}

func TestInstalled(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	there := agenttest.WriteProgram(t, bin, "there", "", "")
	for name, tt := range map[string]struct {
		command string
		home    string
		want    bool
	}{
		"the command":  {"there", "", true},
		"the settings": {"away", home, true},
		"a file":       {"away", there, false},
		"neither":      {"away", filepath.Join(home, "x"), false},
		"no home":      {"away", "", false},
	} {
		if got := Installed(tt.command, tt.home)(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
