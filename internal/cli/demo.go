package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/ide"
	"pollux/internal/sys/disk"
)

func newDemo(streams IO) *cobra.Command {
	var flags companionFlags
	var review func() (string, error)
	var name string
	names := make([]string, len(demoAgents))
	for i, a := range demoAgents {
		names[i] = a.command
	}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try Pollux on a sample project: no account and no key needed",
		Long: `Creates a small project in a temporary directory and runs the real Gemini CLI on
it, with a built-in scripted model: nothing leaves this machine. Type any
request. The model reports what it can see of a simulated editor and proposes a
change, which you review on a page in the browser. The project and its journal
are removed when Gemini CLI ends.

If Gemini CLI is not installed, Pollux offers to download it.

--agent claude runs Claude Code instead, if it is installed. Its requests to the
model stay on this machine, too. Pollux does not control what else it sends.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			where, err := review()
			if err != nil {
				return err
			}
			i := slices.Index(names, name)
			if i < 0 {
				return usageError{fmt.Errorf("the demo cannot run %q: use --agent %s", name, strings.Join(names, " or --agent "))}
			}
			launch := ide.LaunchOf(name)
			argv, err := command(cmd.Context(), streams, launch)
			if err != nil {
				return err
			}
			argv = append(argv, demoAgents[i].args...)
			cfg, report, err := flags.agentConfig()
			if err != nil {
				return err
			}
			defer report(streams.Err)
			temp, err := agent.NewTempDir("demo")
			if err != nil {
				return err
			}
			defer temp.Close()
			dir := temp.Path
			cfg.Journal = journal.New(filepath.Join(dir, "journal"))
			d := demo{agent: demoAgents[i], project: filepath.Join(dir, "greeter"), home: filepath.Join(dir, "home")}
			if d.project, err = d.write(); err != nil {
				return err
			}
			model, err := fakemodel.Start(d.answer)
			if err != nil {
				return err
			}
			defer model.Close()
			cfg.Roots = []string{d.project}
			say(streams.Err, "a sample project, a scripted model, the real %s", launch.Title)
			say(streams.Err, "type any request, then look at the review page; %s ends the demo", d.agent.end)
			ctx, stop := leaveInterruptToAgent(cmd.Context())
			defer stop()
			err = guard(cfg, func(h *ide.Host) error {
				h.Companion.SetContext(d.context())
				c, err := reach(h, launch.Name)
				if err != nil {
					return err
				}
				return runAgent(ctx, streams, c, session{
					agent: launch, argv: argv, dir: d.project, review: where, env: d.agent.env(d.home, model.URL), starts: true,
					demo: true,
				})
			})
			if exit := (exitError{}); err == nil || errors.As(err, &exit) {
				say(streams.Err, "the demo has ended; next: `%s` in your own project, or `%s` (vim, emacs, kakoune, helix) "+
					"for your editor", typed("run"), typed("install nvim"))
			}
			return err
		},
	}
	flags.add(cmd)
	for _, name := range []string{"root", "include-ignored", "listen", "host-name"} { // not for a sample project
		cmd.Flags().MarkHidden(name)
	}
	review = reviewFlag(cmd, streams)
	cmd.Flags().StringVar(&name, "agent", names[0], "the agent: "+strings.Join(names, " or "))
	cmd.RegisterFlagCompletionFunc("agent", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// A demo is the sample project and the scripted model.
type demo struct {
	agent         demoAgent
	project, home string
	turns         atomic.Int32
}

const (
	demoCode = `"""Greets people."""


def greet(name):
    return "Hello " + name


if __name__ == "__main__":
    print(greet("world"))
`
	demoBetter = `"""Greets people."""


def greet(name: str) -> str:
    """Return a greeting for name, or for everybody."""
    return f"Hello, {name.strip() or 'everybody'}!"


if __name__ == "__main__":
    print(greet("world"))
`
	demoTest = `from greet import greet


def test_greets_by_name():
    assert greet("Ada") == "Hello, Ada!"


def test_greets_everybody():
    assert greet("  ") == "Hello, everybody!"
`
	demoReadme  = "# greeter\n\nGreets people.\n"
	demoReadme2 = "# greeter\n\nGreets people, by name where they have one.\n\n    python3 greet.py\n"
)

var demoProposals = []struct {
	say, file, content string
	isNew              bool // the file
}{
	{"I will give it types, a docstring and a kinder greeting.", "greet.py", demoBetter, false},
	{"I will add tests for it, in a new file.", "test_greet.py", demoTest, true},
	{"I will explain in the README how to run it.", "README.md", demoReadme2, false},
}

// write writes the project and the agent's settings, and returns the project's real
// path.
func (d *demo) write() (string, error) {
	files := map[string]string{"greet.py": demoCode, "README.md": demoReadme}
	for name, text := range files {
		if err := writeFile(filepath.Join(d.project, name), text); err != nil {
			return "", err
		}
	}
	project, err := disk.EvalSymlinks(d.project)
	if err != nil {
		return "", err
	}
	for name, settings := range d.agent.settings(project) {
		text, err := json.Marshal(settings)
		if err != nil {
			return "", err
		}
		if err := writeFile(filepath.Join(d.home, name), string(text)); err != nil {
			return "", err
		}
	}
	return project, nil
}

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// context returns the context of a simulated editor: a file is open, and a
// function in it is selected.
func (d *demo) context() editor.Snapshot {
	return editor.Snapshot{Files: []editor.File{
		{Path: filepath.Join(d.project, "greet.py"), Active: true, Cursor: &editor.Cursor{Line: 4, Character: 1},
			Selection: "def greet(name):\n    return \"Hello \" + name\n",
			Range:     &editor.Range{Start: editor.Cursor{Line: 4, Character: 1}, End: editor.Cursor{Line: 6, Character: 1}}},
		{Path: filepath.Join(d.project, "README.md"), Focused: 1},
	}}
}

// answer answers a request in place of the model.
func (d *demo) answer(r fakemodel.Request) fakemodel.Reply {
	if r.Step == 0 {
		d.turns.Add(1)
	}
	n := int(d.turns.Load()) - 1
	if n >= len(demoProposals) {
		return fakemodel.Say("That is all this demo can do. Now try it on your own project: `" + typed("run") + "`.")
	}
	p := demoProposals[n]
	path := filepath.Join(d.project, p.file)
	reads := d.agent.read != "" && !p.isNew
	writes := 0 // the step in which the model writes
	if reads {
		writes = 1
	}
	var parts []fakemodel.Part
	if r.Step == 0 {
		seen := ""
		if n == 0 { // later, the simulated editor no longer has the file's text
			seen = d.agent.see(r)
		}
		parts = append(parts, fakemodel.Part{Text: seen + p.say + "\n"})
		if reads {
			parts = append(parts, fakemodel.Part{Call: d.agent.read, Args: map[string]any{"file_path": path}})
		}
	}
	switch {
	case r.Step == writes:
		parts = append(parts, fakemodel.Part{
			Call: d.agent.write, Args: map[string]any{"file_path": path, "content": p.content},
		})
	case r.Step > writes:
		return fakemodel.Say("Done: the file contains what you accepted. Ask for something else, or type " + d.agent.end + ".")
	}
	return fakemodel.Reply{Parts: parts}
}
