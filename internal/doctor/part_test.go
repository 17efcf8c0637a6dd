package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"pollux/internal/agent/agenttest"
)

// Without arguments, the agents that are not installed are left out and listed. An
// agent in the arguments is always examined.
func TestSelect(t *testing.T) {
	for name, tt := range map[string]struct {
		names, here, want []string
		missing           string
		fails             bool
	}{
		"all are here":       {here: []string{"one", "two"}, want: []string{"one-a", "one-b", "two"}},
		"the first is away":  {here: []string{"two"}, want: []string{"two", Agents}, missing: "not installed: Agent one"},
		"the last is away":   {here: []string{"one"}, want: []string{"one-a", "one-b", Agents}, missing: "not installed: Agent two"},
		"none is here":       {want: []string{"one-a", "one-b", Agents}, missing: "not installed: Agent two"},
		"named":              {names: []string{"two"}, here: []string{"one"}, want: []string{"two"}},
		"both named":         {names: []string{"two", "one"}, want: []string{"one-a", "one-b", "two"}},
		"unknown":            {names: []string{"two", "three"}, fails: true},
		"the name of a part": {names: []string{"one-a"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			here := func(agent string) func() bool { return func() bool { return slices.Contains(tt.here, agent) } }
			parts, err := Select([]Part{
				{Name: "one-a", Agent: "one", Title: "Agent one", Here: here("one")},
				{Name: "one-b", Agent: "one", Title: "Agent one", Here: here("one")},
				{Name: "two", Agent: "two", Title: "Agent two", Here: here("two")},
			}, tt.names)
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
			if report := Examine(t.Context(), Config{}, parts); tt.missing != "" &&
				(len(report.Findings) != 1 || report.Findings[0].Text != tt.missing || report.Findings[0].Status != OK) {
				t.Errorf("found %+v, want %q", report.Findings, tt.missing)
			}
		})
	}
}

func TestInstalled(t *testing.T) {
	bin, home := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	there := agenttest.WriteProgram(t, bin, "there", "", "")
	settings := func(dir string, err error) func() (string, error) { return func() (string, error) { return dir, err } }
	for name, tt := range map[string]struct {
		command string
		home    func() (string, error)
		want    bool
	}{
		"the command":  {"there", settings("", errors.New("no home")), true},
		"the settings": {"away", settings(home, nil), true},
		"a file":       {"away", settings(there, nil), false},
		"neither":      {"away", settings(filepath.Join(home, "x"), nil), false},
		"no home":      {"away", settings("", errors.New("no home")), false},
	} {
		if got := Installed(tt.command, tt.home)(); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// The version comes from the package of the command. Without a package, the command prints it.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write("pkg/package.json", `{"name": "x", "version": "1.2.3"}`)
	write("pkg/bin/run.js", "#!/bin/sh\necho it must not run >&2; exit 1\n")
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	packaged := filepath.Join(bin, "packaged")
	if runtime.GOOS == "windows" { // as npm does it
		write("bin/node.exe", "")
		packaged = agenttest.WriteProgram(t, bin, "packaged", "", `"%~dp0\node.exe" "%~dp0\..\pkg\bin\run.js" %*`)
	} else if err := os.Symlink(filepath.Join(dir, "pkg/bin/run.js"), packaged); err != nil {
		t.Fatal(err)
	}
	printed := agenttest.WriteProgram(t, bin, "printed", "echo 'printed 4.5.6 (x)'", "echo printed 4.5.6 (x)")
	mute := agenttest.WriteProgram(t, bin, "mute", "exit 1", "exit /b 1")
	for command, want := range map[string]Finding{
		"packaged": {Status: OK, Text: "X 1.2.3 (" + packaged + ")"},
		"printed":  {Status: OK, Text: "X 4.5.6 (" + printed + ")"},
		"mute": {Status: Warning, Next: "npm install -g x@latest",
			Text: mute + " does not report its version; the checks below assume the newest one"},
		"nosuchprogram": {Status: Warning, Next: "npm install -g x",
			Text: "X is not installed here: no nosuchprogram is on the PATH of this shell"},
	} {
		report := Examine(t.Context(), Config{}, []Part{{Checks: []Check{Command(command, "X", "x")}}})
		got := report.Findings[0]
		if got.Check != "cli" || got.Status != want.Status || got.Text != want.Text || got.Next != want.Next {
			t.Errorf("%s: %+v, want %+v", command, got, want)
		}
	}
}
