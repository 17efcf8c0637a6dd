package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/fakemodel"
)

// The bridge asks an agent that Pollux does not know: Gemini CLI, under another name. Its user
// and the project allow everything. It changes nothing, whatever bridge.wall says.
func TestAskCustom(t *testing.T) {
	needWall(t)
	var w *world
	w = newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		run := func(command string) fakemodel.Reply {
			return fakemodel.CallTool("run_shell_command", map[string]any{"command": command, "description": "x"})
		}
		if strings.Contains(r.Prompt, "change everything") {
			switch r.Step {
			case 0:
				return fakemodel.CallTool("write_file", map[string]any{"file_path": filepath.Join(w.project, "written.txt"), "content": "x"})
			case 1:
				return run("touch ran.txt; echo bye > hello.txt; echo x > " + filepath.Join(w.home, "outside.txt"))
			case 2:
				return run("mkdir made; mv hello.txt moved.txt")
			}
		}
		return fakemodel.Say("The answer.")
	})
	w.usePool()
	hello := w.file("hello.txt", "hello\n")
	bin := geminiCLI(t)
	w.file(".gemini/settings.json", fmt.Sprintf(`{"mcpServers": {"evil": {"command": "touch", "args": [%q]}}}`, filepath.Join(w.project, "served.txt")))
	own := agent.Definition{
		Name: "mine", Command: []string{bin, "--acp", "--approval-mode=yolo"}, Writable: []string{filepath.Join(w.home, ".gemini")},
		Variables: []string{"GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL", relaunchEnv},
	}
	settings := fmt.Sprintf("[bridge]\nwall = \"off\"\nwarm-wait = \"1m\"\nagent = \"mine\"\n[agents.mine]\nacp = %q\nwritable = %q\nvariables = %q\n",
		own.Command, own.Writable, own.Variables)
	settings = strings.NewReplacer(`" "`, `", "`).Replace(settings)
	w.useFake()
	settings += fmt.Sprintf("[agents.fake]\nacp = [%q, \"--acp\"]\n", w.fake)
	w.writeHome("config.toml", settings)
	w.env = append(w.env, "GEMINI_CLI_PATH="+bin, relaunchEnv+"=true", "POLLUX_CONFIG="+filepath.Join(w.home, "config.toml"))

	made := []string{filepath.Join(w.home, "outside.txt")}
	for _, name := range []string{"written.txt", "ran.txt", "made", "moved.txt", "served.txt"} {
		made = append(made, filepath.Join(w.project, name))
	}
	unchanged := func(by string) {
		t.Helper()
		w.wantFile(hello, "hello\n")
		for _, path := range made {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s made %s", by, path)
			}
		}
	}
	if got := w.pollux("ask", "--agent", "mine", "change everything"); !strings.HasSuffix(got, "The answer.\n") {
		t.Errorf("pollux ask prints %q", got)
	}
	unchanged("pollux ask")
	c := w.connectWith(w.env, polluxBinary)
	tools, err := c.ListTools(w.context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		if tool.Name == "query" && !strings.Contains(fmt.Sprint(tool.InputSchema), "gemini is Gemini CLI, fake is fake, mine is mine") {
			t.Errorf("the tool takes %v", tool.InputSchema)
		}
	}
	asked := c.call("query", map[string]any{"prompt": "change everything", "workingDirectory": w.project})
	if !strings.Contains(asked.text, "The answer.") || asked.Meta["runner"] != "warm" {
		t.Errorf("got %q, %v", asked.text, asked.Meta)
	}
	again := c.call("query", map[string]any{"prompt": "go on", "sessionId": asked.Meta["sessionId"]})
	requests := w.model.Requests()
	if last := requests[len(requests)-1]; !strings.Contains(again.text, "The answer.") || !strings.Contains(last.Text, "change everything") {
		t.Errorf("got %q, %v", again.text, again.Meta)
	}
	unchanged("a warm process")
	inHome := c.call("query", map[string]any{"prompt": "hello", "workingDirectory": own.Writable[0]})
	inHome.want(t, true, "mine could change the files of this directory", "agents.mine.writable")
	c.call("ping", nil).want(t, false, "mine may use any tool, and the kernel keeps it from changing files")
	for want, command := range map[string][]string{
		"mine process ": {"pool", "status"}, `"mine"`: {"usage", "--json"}, "not its version, login and tools": {"doctor", "fake"},
	} {
		if out := w.pollux(command...); !strings.Contains(out, want) {
			t.Errorf("%v: %s", command, out)
		}
	}
	// The same pool asks with the settings as they are now, and ends the process of the old ones.
	before := w.onlyPool()
	w.replaceHome("config.toml", fmt.Sprintf("acp = [%q", bin), fmt.Sprintf("acp = [%q", w.fake))
	if r := c.call("query", map[string]any{"prompt": "hello"}); r.Meta["runner"] != "warm" || !strings.Contains(r.text, "The answer.") {
		t.Errorf("with another command: %q, %v", r.text, r.Meta)
	}
	waitFor(t, "a process with the new settings alone", func() bool {
		after := w.onlyPool()
		return after.PID == before.PID && len(after.Workers) == 1 && after.Workers[0].PID != before.Workers[0].PID
	})
	for _, worker := range before.Workers {
		waitGone(t, worker.PID)
	}
	c.leave()

	// Without the wall, the same agent changes everything. With -short,
	// TestWallHoldsWithoutThePolicy shows it.
	if testing.Short() {
		return
	}
	row := *agents.Custom(own)[0]
	row.Custom, row.ReadTools = false, []string{"edit", "execute"}
	direct := new(acpAgent).open(w, &row)
	direct.source.Env = w.env
	direct.answer(agent.Request{Prompt: "change everything"}, "The answer.")
	for _, path := range made {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("without the wall, there is no %s: this test proves nothing", path)
		}
	}
}
