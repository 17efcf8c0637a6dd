package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/gemini"
	"pollux/internal/fakemodel"
	"pollux/internal/wall"
)

// needWall skips a test where the kernel has no Landlock.
func needWall(t *testing.T) {
	t.Helper()
	if err := wall.Available(); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" && runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// The wall holds Gemini CLI even without its policy, and in its most permissive mode: the
// model's tools and the repository's own programs change nothing, the user's settings
// outside the CLI's directory neither. Without the wall they do.
func TestWallHoldsWithoutThePolicy(t *testing.T) {
	needWall(t)
	w := newWorld(t, attack)
	permissive := *gemini.Agent()
	weaken := func(command func(agent.Launch) (agent.Command, error)) func(agent.Launch) (agent.Command, error) {
		return func(l agent.Launch) (agent.Command, error) {
			c, err := command(l)
			c.Args = slices.DeleteFunc(c.Args, func(arg string) bool {
				return strings.HasPrefix(arg, "--admin-policy") || strings.HasPrefix(arg, "--policy") ||
					strings.HasPrefix(arg, "--approval-mode") || strings.HasPrefix(arg, "--allowed-mcp-server-names")
			})
			c.Args = append(c.Args, "--approval-mode=yolo")
			return c, err
		}
	}
	warm := *permissive.Warm
	warm.Command, permissive.Warm = weaken(warm.Command), &warm
	once := *permissive.OneShot
	once.Command, permissive.OneShot = weaken(once.Command), &once
	// Its tools may run: otherwise the first one ends the request.
	permissive.ReadTools = slices.Concat(permissive.ReadTools, permissive.WriteTools, []string{
		"exit_plan_mode", "write_file", "replace", "run_shell_command", "save_memory", "web_fetch", "invoke_agent", "write_todos", "activate_skill",
	})
	w.file("hello.txt", "good morning")
	w.tamper()
	from := agent.Source{Command: geminiCLI(t), Env: w.bridgeEnv()}
	kinds := []string{agent.Warmed, agent.Spawned}
	if testing.Short() { // TestBridgeSession has the other one behind the wall
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		for _, mode := range []string{agent.WallRequired, agent.WallOff} {
			runner, err := agents.Open(&permissive, agent.Options{Wall: agent.Wall{Mode: mode, Launcher: polluxBinary}})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"written.txt", "ran.txt", "served.txt"} {
				if err := os.Remove(filepath.Join(w.project, name)); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			w.file("hello.txt", "good morning")
			before := w.tree()
			result, err := runner.Run(w.context(), agent.Request{
				Prompt: "go", Dir: w.project, Source: from, Spawn: kind == agent.Spawned,
			}, func(agent.Event) {})
			if err := runner.Close(); err != nil {
				t.Error(err)
			}
			after := w.tree()
			t.Logf("%s, wall %s: %q, %v; the files: %s", kind, mode, result.Answer, err, after)
			if mode == agent.WallRequired {
				if after != before {
					t.Errorf("%s: behind the wall the files changed: %s", kind, after)
				}
				if err != nil || !strings.Contains(result.Answer, "tried everything") {
					t.Errorf("%s: the agent does not work behind the wall: %q, %v", kind, result.Answer, err)
				}
				continue
			}
			for _, mark := range []string{"written.txt=evil", "ran.txt", "evil morning", "served.txt"} {
				if !strings.Contains(after, mark) {
					t.Errorf("%s: without the wall the attack does not make %s, so this test proves nothing: %s", kind, mark, after)
				}
			}
		}
	}
}

// A bridge that requires the wall does not use a pool without one.
func TestWallIsRequired(t *testing.T) {
	needWall(t)
	w := newFakeWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") })
	w.usePool()
	free := w.bridge("POLLUX_WALL=off")
	free.call("query", map[string]any{"prompt": "one"}).want(t, false, "ok")
	pool := w.onlyPool()
	if pool.Wall != "the kernel does not keep agents from changing files: bridge.wall is off, except for agents that config.toml adds" || len(pool.Workers) != 1 {
		t.Errorf("the pool is %+v", pool)
	}
	c := w.bridge("POLLUX_WALL=require")
	c.call("query", map[string]any{"prompt": "two"}).want(t, false, "ok")
	if n := len(w.onlyPool().Workers); n != 1 || len(children(t, c.cmd.Process.Pid)) == 0 {
		t.Errorf("the pool has %d processes; the bridge %v", n, children(t, c.cmd.Process.Pid))
	}
	free.leave()
	c.leave()
}
