package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/ide"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys"
)

func newDemo(streams IO) *cobra.Command {
	var flags companionFlags
	var review func() (string, error)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try Pollux on a sample project: no account and no key needed",
		Long: `Creates a small project in a temporary directory and runs the real Gemini CLI on
it, with a built-in scripted model: nothing leaves this machine. Type any
request. The model reports what it can see of a simulated editor and proposes a
change, which you review on a page in the browser. The project and its journal
are removed when Gemini CLI ends.

The first run may need the network once, to fetch Gemini CLI with npx.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			where, err := review()
			if err != nil {
				return err
			}
			agent := ide.LaunchOf(geminiide.GeminiCommand)
			argv, err := command(agent)
			if err != nil {
				return err
			}
			cfg, err := flags.config(streams)
			if err != nil {
				return err
			}
			leftDemos.Remove(os.TempDir())
			dir, err := os.MkdirTemp("", fmt.Sprintf("pollux-demo-%d-", os.Getpid()))
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			cfg.Journal = journal.New(filepath.Join(dir, "journal"))
			d := demo{project: filepath.Join(dir, "greeter"), home: filepath.Join(dir, "home")}
			if d.project, err = d.write(); err != nil {
				return err
			}
			model, err := fakemodel.Start(d.answer)
			if err != nil {
				return err
			}
			defer model.Close()
			cfg.Roots = []string{d.project}
			fmt.Fprintln(streams.Err, "pollux: a sample project, a scripted model, the real Gemini CLI. "+
				"Type any request, then look at the review page. Type /quit to end.")
			return runAgent(cmd.Context(), streams, cfg, session{
				agent: agent, argv: argv, dir: d.project, review: where, env: d.env(model.URL),
				started: func(h *ide.Host) { h.Companion.SetContext(d.context()) },
			})
		},
	}
	flags.add(cmd)
	review = reviewFlag(cmd)
	return cmd
}

// leftDemos finds the directories of demos that were killed.
var leftDemos = sys.Leftovers{Pattern: "pollux-demo-*-*", Type: fs.ModeDir, PID: func(name string) int {
	pid, _ := strconv.Atoi(strings.Split(name, "-")[2])
	return pid
}}

// A demo is the sample project and the scripted model.
type demo struct {
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

var demoProposals = []struct{ say, file, content string }{
	{"I will give it types, a docstring and a kinder greeting.", "greet.py", demoBetter},
	{"I will add tests for it, in a new file.", "test_greet.py", demoTest},
	{"I will explain in the README how to run it.", "README.md", demoReadme2},
}

// write writes the project and the CLI's settings, and returns the project's
// real path.
func (d *demo) write() (string, error) {
	settings := map[string]any{
		"general": map[string]any{"enableAutoUpdate": false, "enableAutoUpdateNotification": false,
			"disableAutoUpdate": true, "disableUpdateNag": true},
		"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"},
			"folderTrust": map[string]any{"enabled": false}},
		"ui":      map[string]any{"hideBanner": true, "hideTips": true},
		"ide":     map[string]any{"enabled": true, "hasSeenNudge": true},
		"privacy": map[string]any{"usageStatisticsEnabled": false},
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return "", err
	}
	for path, content := range map[string]string{
		filepath.Join(d.project, "greet.py"):              demoCode,
		filepath.Join(d.project, "README.md"):             demoReadme,
		filepath.Join(d.home, ".gemini", "settings.json"): string(text),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return filepath.EvalSymlinks(d.project)
}

// env restricts the CLI to the demo: a separate home, the scripted model, and a
// key that is not real.
func (d *demo) env(model string) []string {
	env := []string{
		"HOME=" + d.home, "USERPROFILE=" + d.home, "GEMINI_CLI_HOME=" + d.home,
		"GOOGLE_GEMINI_BASE_URL=" + model, "GEMINI_API_KEY=demo", "GEMINI_MODEL=gemini-2.5-flash",
		"GOOGLE_API_KEY=", "GOOGLE_GENAI_USE_VERTEXAI=", "GOOGLE_GENAI_USE_GCA=", "GEMINI_SANDBOX=",
	}
	// Let npx use the user's cache.
	if home, err := os.UserHomeDir(); err == nil && os.Getenv("npm_config_cache") == "" {
		env = append(env, "npm_config_cache="+filepath.Join(home, ".npm"))
	}
	return env
}

// context returns the context of a simulated editor: a file is open, and a
// function in it is selected.
func (d *demo) context() editor.Snapshot {
	return editor.Snapshot{Files: []editor.File{
		{Path: filepath.Join(d.project, "greet.py"), Active: true, Cursor: &editor.Cursor{Line: 4, Character: 1},
			Selection: "def greet(name):\n    return \"Hello \" + name\n"},
		{Path: filepath.Join(d.project, "README.md"), Focused: 1},
	}}
}

// answer answers a request in place of the model.
func (d *demo) answer(r fakemodel.Request) fakemodel.Reply {
	if r.Step > 0 {
		return fakemodel.Say("Done: the file contains what you accepted. Ask for something else, or type /quit.")
	}
	n := int(d.turns.Add(1)) - 1
	if n >= len(demoProposals) {
		return fakemodel.Say("That is all this demo can do. Now try it on your own project: `pollux run`.")
	}
	p := demoProposals[n]
	return fakemodel.Reply{Parts: []fakemodel.Part{
		{Text: describeContext(r.Text) + p.say + "\n"},
		{Call: "write_file", Args: map[string]any{"file_path": filepath.Join(d.project, p.file), "content": p.content}},
	}}
}

// describeContext describes the editor's context in a request to the model.
func describeContext(text string) string {
	i := strings.LastIndex(text, `"activeFile":`)
	if i < 0 {
		return ""
	}
	var active struct {
		Path   string
		Cursor struct{ Line int }
		Text   string `json:"selectedText"`
	}
	dec := json.NewDecoder(strings.NewReader(text[i+len(`"activeFile":`):]))
	if dec.Decode(&active) != nil {
		return ""
	}
	seen := fmt.Sprintf("I see %s open in your editor, the cursor in line %d", filepath.Base(active.Path),
		active.Cursor.Line)
	if first, _, _ := strings.Cut(active.Text, "\n"); first != "" {
		seen += fmt.Sprintf(", and %q selected", first)
	}
	return seen + ". "
}
