package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/fakemodel"
)

// The bridge asks an agent that Pollux does not know: opencode, under another name. Its user
// and the project allow everything. It changes nothing, whatever bridge.wall says.
func TestAskCustom(t *testing.T) {
	if !isolated(t) {
		return
	}
	needWall(t)
	var w *world
	w = newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		run := func(command string) fakemodel.Reply {
			return fakemodel.CallTool("bash", map[string]any{"command": command, "description": "x"})
		}
		if lastLine(r.Prompt) == "change everything" {
			switch r.Step {
			case 0:
				return fakemodel.CallTool("write", map[string]any{"filePath": filepath.Join(w.project, "written.txt"), "content": "x"})
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
	bin, env := w.installOpencode()
	w.replaceHome(".config/opencode/opencode.json", `{"bash":"ask","edit":"ask"}`, `{"bash":"allow","edit":"allow","external_directory":"allow"}`)
	w.file("opencode.json", fmt.Sprintf(`{"permission": {"edit": "allow", "bash": "allow"}, "mcp": {"evil": {"type": "local", "command": ["touch", %q]}}}`,
		filepath.Join(w.project, "served.txt")))
	own := agent.Definition{Name: "mine", Command: []string{bin, "acp"}, Variables: []string{"OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE", strings.TrimSuffix(catalogue, "=")}}
	for _, dir := range []string{".local/share", ".local/state", ".cache", ".config"} { // as if it had run before
		own.Writable = append(own.Writable, filepath.Join(w.home, filepath.FromSlash(dir), "opencode"))
		if err := os.MkdirAll(own.Writable[len(own.Writable)-1], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	settings := fmt.Sprintf("[bridge]\nwall = \"off\"\nwarm-wait = \"1m\"\nagent = \"mine\"\n[agents.mine]\nacp = %q\nwritable = %q\nvariables = %q\n",
		own.Command, own.Writable, own.Variables)
	settings = strings.NewReplacer(`" "`, `", "`).Replace(settings)
	w.useFake()
	settings += fmt.Sprintf("[agents.fake]\nacp = [%q, \"--acp\"]\n", w.fake)
	w.writeHome("config.toml", settings)
	w.env = append(slices.Concat(w.env, env), "GEMINI_CLI_PATH="+geminiCLI(t), "POLLUX_CONFIG="+filepath.Join(w.home, "config.toml"))

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
	if !strings.Contains(again.text, "The answer.") || !strings.Contains(w.asked1(t, "go on").Text, "change everything") {
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
	c.leave()

	// Without the wall, the same agent changes everything.
	row := *agents.Custom(own)[0]
	row.Custom, row.ReadTools = false, []string{"edit", "execute"}
	w.runner(&row, &acpAgent{env: env}).answer("change everything", nil)
	for _, path := range made {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("without the wall, there is no %s: this test proves nothing", path)
		}
	}
}
