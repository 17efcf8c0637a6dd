package checks

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/program"
	"pollux/internal/doctor"
	"pollux/internal/sys/systest"
)

// The version comes from the package of the command. Without a package, the command prints it.
func TestProgram(t *testing.T) {
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
	systest.MakeDir(t, bin)
	packaged := filepath.Join(bin, "packaged")
	if runtime.GOOS == "windows" { // as npm does it
		write("bin/node.exe", "")
		packaged = agenttest.WriteProgram(t, bin, "packaged", "", `"%~dp0\node.exe" "%~dp0\..\pkg\bin\run.js" %*`)
	} else if err := os.Symlink(filepath.Join(dir, "pkg/bin/run.js"), packaged); err != nil {
		t.Fatal(err)
	}
	printed := agenttest.WriteProgram(t, bin, "printed", "echo 'printed 4.5.6 (x)'", "echo printed 4.5.6 (x)")
	mute := agenttest.WriteProgram(t, bin, "mute", "exit 1", "exit /b 1")
	for command, want := range map[string]doctor.Finding{
		"packaged": {Status: doctor.OK, Text: "X 1.2.3 (" + packaged + ")"},
		"printed":  {Status: doctor.OK, Text: "X 4.5.6 (" + printed + ")"},
		"mute": {Status: doctor.Warning, Next: "npm install -g x@latest",
			Text: mute + " does not report its version; the checks below assume the newest one"},
		"nosuchprogram": {Status: doctor.Warning, Next: "npm install -g x",
			Text: "X is not installed here: no nosuchprogram is on the PATH of this shell"},
	} {
		release := program.Release{Name: "X", Command: command, Packages: []string{"x"}, Env: func(env agent.Env, _ string) []string { return env.List() }}
		a := &Asked{Agent: &agent.Agent{Finder: release.Finder(nil)}}
		report := doctor.Examine(t.Context(), doctor.Config{}, []doctor.Part{{Checks: []doctor.Check{a.Program("X", "x")}}})
		got := report.Findings[0]
		if got.Check != "cli" || got.Status != want.Status || got.Text != want.Text || got.Next != want.Next {
			t.Errorf("%s: %+v, want %+v", command, got, want)
		}
	}
}
