package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// A request for one workspace contains nothing of another, nor of files that
// have left the workspace.
func TestWarmIsolation(t *testing.T) {
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") })
	secret := func(what string) string { return "planted-" + what }
	other := filepath.Join(filepath.Dir(w.project), "other")
	for name, text := range map[string]string{
		".env":          "PLANTED=" + secret("env") + "\nGEMINI_MODEL=" + secret("model") + "\n",
		"GEMINI.md":     secret("memory"),
		"src/GEMINI.md": secret("deep-memory"),
		"notes.txt":     secret("file"),
	} {
		w.file(name, text)
	}
	systest.WriteFile(t, filepath.Join(other, "app.txt"), "nothing\n")
	c := w.bridge("GEMINI_MODEL=", "GEMINI_DEFAULT_MODEL=gemini-2.5-flash", "GEMINI_MAX_CONCURRENT=4")
	ask := func(dir, prompt string) outcome {
		return c.call("query", map[string]any{"prompt": prompt, "workingDirectory": dir})
	}
	for range 2 {
		ask(w.project, secret("history")).want(t, false, "ok")
		ask(other, "in the other").want(t, false, "ok")
		ask(w.project, "again").want(t, false, "ok")
	}
	sawMemory := false
	for _, r := range w.model.Requests() {
		sawMemory = sawMemory || strings.Contains(r.Text, secret("memory"))
		for _, what := range []string{"env", "model", "memory", "deep-memory", "file", "history"} {
			found := strings.Contains(r.Text, secret(what)) || strings.Contains(r.Model, secret(what))
			switch {
			case strings.Contains(r.Prompt, "in the other") && found:
				t.Errorf("a request for the other workspace has the first one's %s", what)
			case strings.Contains(r.Prompt, "again") && found && what != "memory":
				t.Errorf("a later request has the %s of another", what)
			}
		}
	}
	if !sawMemory {
		t.Error("no request contains the workspace's own GEMINI.md, so this test proves nothing")
	}
	pids := map[string]bool{}
	for _, line := range strings.Split(c.call("ping", nil).text, "\n") {
		if rest, ok := strings.CutPrefix(line, "warm: Gemini CLI process "); ok {
			pids[strings.Fields(rest)[0]] = true
		}
	}
	if len(pids) != 2 {
		t.Errorf("ping lists processes %v", pids)
	}
	for pid := range pids {
		if status := w.pollux("status"); !strings.Contains(status, "process "+pid+" in ") {
			t.Errorf("no process %s in\n%s", pid, status)
		}
	}
	if status := w.pollux("status", "--bridges", "--json"); !strings.Contains(status, `"runner": "warm"`) {
		t.Errorf("--json says %s", status)
	}
	w.wantNothingLeft(c)
}

// The CLI's own tools change several files in several steps. The disk does not
// change; the result has the edits and the diff.
func TestWarmChangeMode(t *testing.T) {
	t.Parallel()
	t.Run(agent.Warmed, warmChangeMode)
	if !testing.Short() { // TestPoolSSH has a pool
		t.Run(poolKind, warmChangeMode)
	}
}

func warmChangeMode(t *testing.T) {
	var w *world
	var private string
	// The CLI writes its memory and its temporary files without asking its client.
	own := []string{"GEMINI.md", "settings.json", "tmp/project/evil.txt"}
	plant := func(elem ...string) fakemodel.Reply {
		return fakemodel.CallTool("write_file", map[string]any{"file_path": filepath.Join(elem...), "content": "planted\n"})
	}
	w = newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		var steps []fakemodel.Reply
		for _, name := range own {
			steps = append(steps, plant(w.home, ".gemini", filepath.FromSlash(name)))
		}
		_, spoiled, spoils := strings.Cut(lastLine(r.Prompt), "spoil ")
		switch {
		case spoils:
			steps = []fakemodel.Reply{plant(w.home, ".gemini", filepath.FromSlash(spoiled))}
		case strings.Contains(r.Prompt, "plant a key"):
			steps = []fakemodel.Reply{plant(private, ".env")}
		case strings.Contains(r.Prompt, "rename greet"):
			greet := filepath.Join(w.project, "greet.py")
			steps = append([]fakemodel.Reply{
				fakemodel.CallTool("read_file", map[string]any{"file_path": "greet.py"}),
				fakemodel.CallTool("replace", map[string]any{"file_path": greet, "instruction": "rename", "old_string": "def greet():", "new_string": "def hello():"}),
				fakemodel.CallTool("replace", map[string]any{"file_path": greet, "instruction": "more", "old_string": "def hello():\n    pass", "new_string": "def hello():\n    print('hello')"}),
				fakemodel.CallTool("write_file", map[string]any{"file_path": filepath.Join(w.project, "docs", "hello.md"), "content": "# Hello\n"}),
				plant(w.project, "..", "outside.txt"),
				fakemodel.CallTool("run_shell_command", map[string]any{"command": "touch ran"}),
			}, steps...)
		}
		if r.Step < len(steps) {
			return steps[r.Step]
		}
		return fakemodel.Say("Renamed it.")
	})
	before := map[string]string{"greet.py": "def greet():\r\n    pass\r\n", "other.txt": "other\n"}
	for name, text := range before {
		w.file(name, text)
	}
	const secret = "MY_API_KEY=very-secret\n"
	w.writeHome(".gemini/.env", secret)
	c := w.bridge()
	o := c.call("query", map[string]any{"prompt": "rename greet to hello", "changeMode": true})
	o.want(t, false, "Renamed it.", "+def hello():")
	for name, text := range before {
		w.wantFile(filepath.Join(w.project, name), text)
	}
	for _, path := range []string{filepath.Join(w.project, "docs"), filepath.Join(w.project, "ran"), filepath.Join(filepath.Dir(w.project), "outside.txt")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is on the disk", path)
		}
	}
	changes := o.StructuredContent.(map[string]any)
	if edits := changes["edits"].([]any); len(edits) != 2 || changes["response"] != "Renamed it." || changes["appliedWrites"] != false {
		t.Errorf("got %v", changes)
	}
	o.apply(t, w.project)
	w.wantFile(filepath.Join(w.project, "greet.py"), "def hello():\r\n    print('hello')\r\n")
	w.wantFile(filepath.Join(w.project, "docs", "hello.md"), "# Hello\n")
	if o.Meta["runner"] != agent.Warmed {
		t.Errorf("_meta is %v", o.Meta)
	}

	// Pollux once copied the .env with the API key into the private home. It must be the user's own
	// file there, too, and the CLI's tools must not write to it.
	homes, err := filepath.Glob(filepath.Join(w.tmp(), "pollux-bridge-*", "worker-*", "home", ".gemini"))
	if err != nil || len(homes) == 0 {
		t.Fatalf("there is no private home: %v", err)
	}
	private = homes[0]
	c.call("query", map[string]any{"prompt": "plant a key", "changeMode": true})
	w.wantFile(filepath.Join(w.home, ".gemini", ".env"), secret)
	if info, err := os.Lstat(filepath.Join(private, ".env")); err != nil || info.Mode().IsRegular() {
		t.Errorf("the private home holds a copy of .env: %v, %v", info, err)
	}

	// The workspace is the home itself.
	names := own
	if testing.Short() { // each write ends a process
		names = own[1:2]
	}
	for _, name := range names {
		o := c.call("query", map[string]any{"prompt": "spoil " + name, "changeMode": true, "workingDirectory": w.home})
		if w.timesAsked("spoil "+name) == 0 {
			t.Errorf("the model was not asked to spoil %s: %s", name, o.text)
		}
		if after, _ := os.ReadFile(filepath.Join(w.home, ".gemini", filepath.FromSlash(name))); strings.Contains(string(after), "planted") {
			t.Errorf("%s is now %q; the call: %s", name, after, o.text)
		}
	}
	w.wantNothingLeft(c)
}
