package agent

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestEnv(t *testing.T) {
	home := "HOME"
	if runtime.GOOS == "windows" {
		home = "USERPROFILE"
	}
	t.Setenv(home, "/home/ours")
	t.Setenv("POLLUX_TEST", "ours")
	ours, theirs := Env(nil), Env{home + "=/home/theirs", "A=1", "POLLUX_TEST=first", "POLLUX_TEST=last=x", "broken"}
	for _, tt := range []struct {
		env        Env
		home, test string
	}{{ours, "/home/ours", "ours"}, {theirs, "/home/theirs", "last=x"}} {
		if home, err := tt.env.HomeDir(); home != tt.home || err != nil {
			t.Errorf("the home is %q, %v", home, err)
		}
		if got := tt.env.Get("POLLUX_TEST"); got != tt.test {
			t.Errorf("the variable is %q", got)
		}
	}
	if _, err := (Env{}).HomeDir(); err == nil {
		t.Error("an empty environment has a home")
	}
	pass := func(name string) bool { return name != home }
	if got := theirs.Only(pass); !slices.Equal(got, []string{"A=1", "POLLUX_TEST=last=x"}) {
		t.Errorf("got %q", got)
	}
	if got := theirs.Only(func(string) bool { return false }); got == nil || len(got) > 0 {
		t.Errorf("got %q, which is the environment of this process", got)
	}
	if got := ours.Only(func(name string) bool { return name == "POLLUX_TEST" }); !slices.Equal(got, []string{"POLLUX_TEST=ours"}) {
		t.Errorf("got %q", got)
	}
}

func TestLookPath(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	t.Setenv("PATH", other)
	ext := ""
	if runtime.GOOS == "windows" {
		ext = ".exe"
	}
	write := func(dir, name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tool, ours := write(dir, "tool"+ext, 0o755), write(other, "tool"+ext, 0o755)
	write(dir, "text", 0o644)
	list := func(dirs ...string) Env { return Env{"PATH=" + strings.Join(dirs, string(filepath.ListSeparator))} }
	for _, tt := range []struct {
		name    string
		env     Env
		program string
		want    string
	}{
		{"this process", nil, "tool", ours},
		{"another process", list(dir, other), "tool", tool},
		{"a directory without it", list(t.TempDir(), dir), "tool", tool},
		{"an absolute path", list(), tool, tool},
		{"a missing one", list(dir), "none", ""},
		{"a file that is no program", list(dir), "text", ""},
		{"a directory", list(filepath.Dir(dir)), filepath.Base(dir), ""},
		{"no name", list(dir), "", ""},
		{"no PATH", Env{}, "tool", ""},
		// The working directory belongs to another process.
		{"a relative directory", list("."), "tool", ""},
		{"an empty directory", list("", "none"), "tool", ""},
		{"a relative directory before another", list(".", other), "tool", ours},
		{"a relative path", list(dir), "./tool", ""},
		{"a parent directory", list(dir), "..", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.env.LookPath(tt.program)
			var failed *exec.Error
			if got != tt.want || (tt.want == "") != errors.As(err, &failed) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestSourceKey(t *testing.T) {
	row := &Finder{Command: "agent", Environment: func(env Env) []string {
		return env.Only(func(name string) bool { return strings.HasPrefix(name, "X_") })
	}}
	key := func(command string, env ...string) string { return row.SourceKey(Source{command, env}) }
	same := []string{
		key("", "X_A=1", "X_B=2"), key("agent", "X_A=1", "X_B=2"), key("", "X_B=2", "X_A=1"),
		key("", "X_A=1", "X_B=2", "TMUX=3"), key("", "X_B=0", "X_A=1", "X_B=2"),
	}
	for i, k := range same {
		if k != same[0] {
			t.Errorf("source %d has another key", i)
		}
	}
	others := []string{
		same[0], key(""), key("/bin/agent", "X_A=1", "X_B=2"), key("", "X_A=1"), key("", "X_A=1", "X_B=3"), key("", "X_A=1X_B=2"),
		key("", "X_A=1\nX_B=2"), key("", "X_A=2", "X_B=1"), key("", "X_A=", "X_B=2"),
	}
	slices.Sort(others)
	if len(slices.Compact(others)) != 9 {
		t.Errorf("different sources share a key: %q", others)
	}
}

// Messages contain no secret of the client for which the agent runs, and none of
// this process.
func TestLineWithoutSecrets(t *testing.T) {
	t.Setenv("POLLUX_TEST_TOKEN", "our-secret")
	env := Env{"GEMINI_API_KEY=their-secret", "LONGER_KEY=their-secret-and-more", "NAME=public", "SHORT_KEY=a"}
	for message, want := range map[string]string{
		"bad key their-secret":          "bad key ***",
		"their-secret-and-more is bad":  "*** is bad",
		"our-secret, public":            "***, public",
		"https://x/?key=anything&a=1 x": "https://x/?key=***&a=1 x",
		// The line is cut after the secrets are removed.
		strings.Repeat("x", 295) + " their-secret": strings.Repeat("x", 295) + " ***",
	} {
		if got := Line(env, message); got != want {
			t.Errorf("%q becomes %q", message, got)
		}
	}
}
