package custom

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/sys/systest"
)

// An agent may change its own directories and those in the settings. It receives the variables
// that begin with its name, and those in the settings.
func TestCustomAgentStarts(t *testing.T) {
	home := t.TempDir()
	extra := filepath.Join(home, "extra")
	env := agent.Env{"HOME=" + home, "USERPROFILE=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, "c"), "XDG_STATE_HOME=relative", "MY_CLI_KEY=k", "TOKEN=t", "OTHER=o", "PATH=/bin"}
	row := Agent(agent.Definition{Name: "my-cli", Command: []string{"cli", "acp", "-x"}, Writable: []string{extra}, Variables: []string{"TOKEN"}})
	c, err := row.Warm.Command(agent.Launch{Dir: t.TempDir(), TempDir: t.TempDir(), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(home, ".my-cli"), filepath.Join(home, ".local", "share", "my-cli"), filepath.Join(home, "c", "my-cli"), extra}
	if !slices.Equal(c.Args, []string{"acp", "-x"}) || !slices.Equal(c.Writable, want) {
		t.Errorf("got %q, writable %q", c.Args, c.Writable)
	}
	got := agent.Env(c.Env)
	if got.Get("MY_CLI_KEY") != "k" || got.Get("TOKEN") != "t" || got.Get("OTHER") != "" {
		t.Errorf("the environment is %q", got)
	}
	if entries, _ := os.ReadDir(home); len(entries) > 0 {
		t.Errorf("made %v", entries)
	}
	other := append(env[:len(env):len(env)], "MY_CLI_KEY=other")
	if row.Account(env, "") == row.Account(other, "") {
		t.Error("two keys are one account")
	}
	// A directory that it may change is not a workspace.
	for _, dir := range []string{extra, filepath.Join(extra, "below")} {
		systest.MakeDir(t, dir)
		_, err := row.Warm.Command(agent.Launch{Dir: dir, TempDir: t.TempDir(), Env: env})
		agenttest.WantKind(t, err, agent.Unenforceable, "agents.my-cli.writable")
	}
}

// What fails has a next step.
func TestFailures(t *testing.T) {
	row := Agent(agent.Definition{Name: "kimi", Command: []string{"kimi", "acp"}})
	_, err := row.Locate(agent.Source{Env: agent.Env{"PATH=/none"}})
	agenttest.WantKind(t, err, agent.NotInstalled, "agents.kimi.acp")
	agenttest.WantKind(t, row.Warm.Failure(nil, -32000, "Authentication required", nil), agent.Auth, "run `kimi`")
	agenttest.WantKind(t, row.Warm.Failure(nil, -32601, "Method not found: session/set_model", nil), agent.BadModel, "leave the model out")
	agenttest.WantKind(t, row.Warm.Failure(nil, -32603, "boom", nil), agent.Failed, "run `kimi acp`")
}

// Pollux does not run the program to learn its version, because no wall would hold it.
func TestCustomAgentIsNotRun(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	bin := agenttest.WriteProgram(t, dir, "kimi", "touch "+ran+"\necho 1.2.3", "")
	row := Agent(agent.Definition{Name: "kimi", Command: []string{bin}})
	from := agent.Source{}
	program, err := row.Check(t.Context(), from)
	if err != nil || program.Path != bin || program.Version != "" || !row.Usable(from) {
		t.Errorf("%+v, %v", program, err)
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("the program ran")
	}
}
