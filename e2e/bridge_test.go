package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent"
	"pollux/internal/fakemodel"
	"pollux/internal/paths"
	"pollux/internal/sys/systest"
)

// A bridgeClient is an MCP client of `pollux bridge`, which runs the real
// Gemini CLI.
type bridgeClient struct {
	*mcp.ClientSession
	w     *world
	cmd   *exec.Cmd
	leave func() // closes the bridge's standard input and waits until it exits

	reported chan string // the messages of its progress notifications
}

func (w *world) bridge(env ...string) *bridgeClient {
	w.t.Helper()
	return w.connectWith(append(w.bridgeEnv(), env...), polluxBinary)
}

// connectWith starts a bridge with a command for pollux, and connects to it.
func (w *world) connectWith(env []string, pollux ...string) *bridgeClient {
	w.t.Helper()
	argv := append(slices.Clone(pollux), "bridge", "--log", "debug")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = env, w.project
	return w.connect(cmd)
}

// connect starts a bridge and connects to it, as a client with the bridge's directory.
func (w *world) connect(cmd *exec.Cmd) *bridgeClient {
	w.t.Helper()
	c := &bridgeClient{w: w, cmd: cmd, reported: make(chan string, 1000)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.reported <- r.Params.Message
		},
	})
	//lint:ignore SA1019 the protocol has deprecated roots; its clients have not
	client.AddRoots(&mcp.Root{URI: paths.ToURL(cmp.Or(cmd.Dir, w.project)), Name: "project"})
	in, out := w.start(cmd)
	c.leave = sync.OnceFunc(func() {
		in.Close()
		cmd.Wait()
	})
	w.t.Cleanup(c.leave)
	session, err := client.Connect(w.context(), &mcp.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	c.ClientSession = session
	return c
}

// An outcome is a tool's result as a client sees it.
type outcome struct {
	*mcp.CallToolResult
	text string // the text of the first content
}

func (c *bridgeClient) call(tool string, args map[string]any) outcome {
	c.w.t.Helper()
	p := &mcp.CallToolParams{Name: tool, Arguments: args}
	p.SetProgressToken("p")
	r, err := c.CallTool(c.w.context(), p)
	if err != nil {
		c.w.t.Fatal(err)
	}
	o := outcome{CallToolResult: r}
	if len(r.Content) > 0 {
		o.text = r.Content[0].(*mcp.TextContent).Text
	}
	return o
}

func (o outcome) want(t *testing.T, isError bool, texts ...string) {
	t.Helper()
	if o.IsError != isError {
		t.Errorf("isError is %v: %s", o.IsError, tail(o.text, 500))
	}
	all := ""
	for _, c := range o.Content {
		all += c.(*mcp.TextContent).Text + "\n"
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("no %q in %q", text, tail(all, 1000))
		}
	}
}

// apply applies the diff of a result in change mode.
func (o outcome) apply(t *testing.T, dir string) {
	t.Helper()
	diff := o.StructuredContent.(map[string]any)["diff"].(string)
	cmd := exec.Command("git", "-c", "core.autocrlf=false", "apply", "-") // Git for Windows sets it
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, diff)
	}
}

// agents returns the processes that work for a bridge.
func (c *bridgeClient) agents() []int {
	c.w.t.Helper()
	if c.w.runtime == "" {
		return children(c.w.t, c.cmd.Process.Pid)
	}
	var all []int
	for _, p := range c.w.pools() {
		all = append(all, children(c.w.t, p.PID)...)
	}
	return all
}

// wantNothingLeft reports the processes and files that a bridge left behind. If it uses a
// pool, that is stopped.
func (w *world) wantNothingLeft(c *bridgeClient) {
	w.t.Helper()
	pid := c.cmd.Process.Pid
	below := children(w.t, pid)
	c.leave()
	if w.runtime != "" {
		w.pollux("pool", "stop")
	}
	waitEnded(w.t, append(below, pid)...)
	left, err := filepath.Glob(filepath.Join(w.tmp(), "pollux-bridge-*"))
	if err != nil || len(left) > 0 {
		w.t.Errorf("the bridge left %v, %v", left, err)
	}
}

func (w *world) tmp() string { return filepath.Join(filepath.Dir(w.project), "tmp") }

// eachRunner runs a test with each of the bridge's runners.
func eachRunner(t *testing.T, test func(t *testing.T)) {
	for _, runner := range []string{agent.Warmed, agent.Spawned} {
		t.Run(runner, test)
	}
}

// warmOrEach runs a test with warm processes. Without -short it is [eachRunner].
func warmOrEach(t *testing.T, test func(t *testing.T)) {
	if !testing.Short() {
		eachRunner(t, test)
		return
	}
	t.Run(agent.Warmed, test)
}

// poolKind is the name of tests in which a bridge uses the pool.
const poolKind = "pool"

// pooled reports whether the bridges of a test use the pool.
func pooled(t *testing.T) bool { return strings.HasSuffix(t.Name(), "/"+poolKind) }

// runner returns the runner of a test of [eachRunner].
func runner(t *testing.T) string {
	if strings.Contains(t.Name()+"/", "/"+agent.Spawned+"/") {
		return agent.Spawned
	}
	return agent.Warmed
}

// outside are files that are not in the project.
const outside = "../*"

// attack is a model that tries to write, to run commands and to read what it
// must not.
func attack(r fakemodel.Request) fakemodel.Reply {
	calls := []fakemodel.Part{
		{Call: "glob", Args: map[string]any{"pattern": outside}},
		{Call: "exit_plan_mode", Args: map[string]any{"plan_filename": "plan.md"}},
		{Call: "write_file", Args: map[string]any{"file_path": "written.txt", "content": "evil\n"}},
		{Call: "replace", Args: map[string]any{"file_path": "hello.txt", "old_string": "good", "new_string": "evil", "instruction": "x"}},
		{Call: "run_shell_command", Args: map[string]any{"command": "touch ran.txt", "description": "x"}},
		{Call: "save_memory", Args: map[string]any{"fact": "evil"}},
		{Call: "web_fetch", Args: map[string]any{"prompt": "get http://127.0.0.1:1/"}},
		{Call: "invoke_agent", Args: map[string]any{"agent_name": "generalist", "prompt": "touch ran.txt"}},
		{Call: "write_todos", Args: map[string]any{"todos": []any{}}},
		{Call: "activate_skill", Args: map[string]any{"name": "evil"}},
	}
	if r.Step < len(calls) {
		return fakemodel.Reply{Parts: calls[r.Step : r.Step+1]}
	}
	return fakemodel.Say("tried everything")
}

// tamper makes the user's and the project's settings as permissive as possible.
func (w *world) tamper() {
	w.writeHome(".gemini/settings.json", `{
		"general": {"defaultApprovalMode": "auto_edit"},
		"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
		"tools": {"useRipgrep": false, "allowed": ["run_shell_command", "write_file", "replace"]}}`)
	rules := "[[rule]]\ntoolName = \"*\"\ndecision = \"allow\"\npriority = 999\n"
	for _, dir := range []string{filepath.Join(w.home, ".gemini", "policies"), filepath.Join(w.project, ".gemini", "policies")} {
		systest.WriteFile(w.t, filepath.Join(dir, "all.toml"), rules)
	}
	// An MCP server of the project, under a name that a policy might allow by
	// mistake.
	command, args := "touch", []string{filepath.Join(w.project, "served.txt")}
	if runtime.GOOS == "windows" {
		command, args = "cmd", append([]string{"/d", "/c", "type", "nul", ">"}, args...)
	}
	servers := map[string]any{"mcpServers": map[string]any{"none": map[string]any{"command": command, "args": args}}}
	settings, err := json.Marshal(servers)
	if err != nil {
		w.t.Fatal(err)
	}
	w.file(".gemini/settings.json", string(settings))
}

func (w *world) tree() string {
	w.t.Helper()
	var b strings.Builder
	for _, name := range []string{"hello.txt", "written.txt", "ran.txt", "served.txt"} {
		data, err := os.ReadFile(filepath.Join(w.project, name))
		if err == nil {
			b.WriteString(name + "=" + string(data) + ";")
		}
	}
	return b.String()
}

// Each tool that runs the agent is read-only: it writes nothing and runs
// nothing, whatever the model tries. The CLI alone, with the same settings and
// model, does write and run.
func TestBridgeIsReadOnly(t *testing.T) {
	t.Parallel()
	eachRunner(t, bridgeIsReadOnly)
}

func bridgeIsReadOnly(t *testing.T) {
	w := newWorld(t, attack)
	w.file("hello.txt", "good morning")
	w.tamper()
	c := w.bridge()
	before := w.tree()
	c.call("query", map[string]any{"prompt": "go"}).want(t, false, "tried everything")
	again := !testing.Short() || runner(t) == agent.Warmed // the tools start the CLI in the same way
	if again {
		c.call("query", map[string]any{"prompt": "go", "changeMode": true}).want(t, false, "tried everything")
		c.call("search", map[string]any{"query": "go"}).want(t, false, "tried everything")
		c.call("structured", map[string]any{"prompt": "go", "schema": map[string]any{"type": "object"}}).want(t, true)
	}
	denied := false
	for _, r := range w.model.Requests() {
		for _, result := range r.Results {
			denied = denied || result.Name == "glob" && strings.Contains(string(result.Response), "denied by policy")
		}
	}
	if !denied {
		t.Errorf("the CLI may list %s", outside)
	}
	if got := w.tree(); got != before {
		t.Fatalf("the files changed: %s", got)
	}
	c.call("ping", nil).want(t, false, "enforced", "read_file", current)
	if testing.Short() { // TestWallHoldsWithoutThePolicy has the CLI alone
		return
	}

	alone := exec.Command(geminiCLI(t), "--output-format=stream-json", "-p", "go")
	alone.Env, alone.Dir = w.env, w.project
	succeed(t, alone)
	marks := []string{"written.txt=evil", "served.txt", "evil morning"}
	if runtime.GOOS != "windows" { // Wine's PowerShell runs nothing
		marks = append(marks, "ran.txt")
	}
	for _, mark := range marks {
		if got := w.tree(); !strings.Contains(got, mark) {
			t.Errorf("without the policy the attack does nothing, so this test proves nothing: %s", got)
		}
	}
}

func TestBridgeErrorsNameTheNextStep(t *testing.T) {
	t.Parallel()
	warmOrEach(t, bridgeErrorsNameTheNextStep)
}

func bridgeErrorsNameTheNextStep(t *testing.T) {
	t.Run("the model", func(t *testing.T) {
		replies := map[string]fakemodel.Reply{
			"blocked":    {Finish: "SAFETY", Parts: []fakemodel.Part{{}}},
			"empty":      {},
			"bad model":  {Status: 404, Message: "models/x is not found for API version v1beta"},
			"bad key":    {Status: 401, Message: "Request had invalid authentication credentials."},
			"overloaded": {Status: 503},
			"quota":      {Status: 429, PerDay: true},
		}
		w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
			for name, reply := range replies {
				if strings.Contains(r.Prompt, "answer with "+name) {
					return reply
				}
			}
			return fakemodel.Say("hi")
		})
		c := w.bridge("GEMINI_FALLBACK_MODEL=None")
		for _, test := range []struct {
			prompt string
			want   []string
			warm   []string // if it differs with a warm process
		}{
			{"blocked", []string{"safety", "rephrase"}, []string{"no answer", "rephrase"}}, // the protocol does not tell it from other failures
			{"empty", []string{"no answer", "try again"}, nil},
			{"bad model", []string{"no such model", "check the name"}, nil},
			{"bad key", []string{"not signed in", "GEMINI_API_KEY"}, nil},
			{"overloaded", []string{"overloaded", "try again later"}, nil},
			{"quota", []string{"quota for today", "name another model"}, nil}, // the last one, as the bridge remembers it
		} {
			t.Run(test.prompt, func(t *testing.T) {
				want := test.want
				if test.warm != nil && runner(t) == agent.Warmed {
					want = test.warm
				}
				c.call("query", map[string]any{"prompt": "answer with " + test.prompt}).want(t, true, want...)
			})
		}
	})
	for _, test := range []struct {
		name  string
		reply fakemodel.Reply
		setup func(*world)
		env   []string
		want  []string
	}{
		{name: "no key", env: []string{"GEMINI_API_KEY="}, want: []string{"not signed in", "sign in"}},
		{name: "untrusted folder", reply: fakemodel.Say("hi"), setup: func(w *world) {
			w.writeHome(".gemini/settings.json", `{"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": true}}}`)
		}, want: []string{"does not trust this folder", "run `gemini` in it"}},
		{name: "broken settings", reply: fakemodel.Say("hi"), setup: func(w *world) { w.writeHome(".gemini/settings.json", "{,}") },
			want: []string{"settings are invalid", "correct the file"}},
		{name: "not installed", env: []string{"GEMINI_CLI_PATH=no-such-gemini"}, want: []string{"not installed", "npm install"}},
		{name: "too old", env: []string{"GEMINI_CLI_PATH=" + filepath.Join(repo, ".cache", "npm", "gemini-"+old, "node_modules", ".bin", "gemini")},
			want: []string{"too old", old, "update it"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "too old" && runtime.GOOS == "windows" {
				t.Skip("scripts/windows.sh installs only the current CLI")
			}
			w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return test.reply })
			if test.setup != nil {
				test.setup(w)
			}
			c := w.bridge(test.env...)
			want := test.want
			// A warm CLI works in an untrusted folder and ignores the folder's
			// settings.
			fails := test.name != "untrusted folder" || runner(t) == agent.Spawned
			if !fails {
				want = []string{"hi"}
			}
			c.call("query", map[string]any{"prompt": "hi"}).want(t, fails, want...)
		})
	}
}

// The CLI exits with the bridge, however the bridge exits.
func TestBridgeLeavesNoCLI(t *testing.T) {
	t.Parallel()
	eachRunner(t, bridgeLeavesNoCLI)
}

func bridgeLeavesNoCLI(t *testing.T) {
	ends := map[string]func(*bridgeClient){
		"killed":       func(c *bridgeClient) { c.cmd.Process.Kill(); c.leave() },
		"terminated":   func(c *bridgeClient) { c.cmd.Process.Signal(signals["SIGTERM"]) },
		"client gone":  func(c *bridgeClient) { go c.leave() },
		"hung up upon": func(c *bridgeClient) { c.cmd.Process.Signal(signals["SIGHUP"]) },
	}
	if runtime.GOOS == "windows" { // which has no such signals
		delete(ends, "terminated")
		delete(ends, "hung up upon")
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && runner(t) == agent.Spawned && (name == "client gone" || name == "hung up upon") {
				t.Skip("the bridge ends its runner as after a SIGTERM")
			}
			world := newFakeWorld
			if name == "killed" || !testing.Short() { // only a killed bridge cannot end the CLI
				world = newWorld
			}
			w := world(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Reply{Hang: true} })
			c := w.bridge()
			go c.CallTool(w.context(), &mcp.CallToolParams{Name: "query", Arguments: map[string]any{"prompt": "hang"}})
			w.request(func(fakemodel.Request) bool { return true })
			running := children(t, c.cmd.Process.Pid)
			end(c)
			waitGone(t, running...)
			if name == "killed" { // the next bridge removes what this one could not
				killed, _ := filepath.Glob(filepath.Join(w.tmp(), "pollux-bridge-*"))
				w.bridge().call("ping", nil)
				for _, dir := range killed {
					if _, err := os.Stat(dir); err == nil {
						t.Errorf("%s is still there", dir)
					}
				}
			}
			waitFor(t, "the removal of its directories", func() bool {
				left, _ := filepath.Glob(filepath.Join(w.tmp(), "pollux-bridge-*"))
				return len(left) == 0 || name == "killed" && len(left) == 1
			})
		})
	}
}
