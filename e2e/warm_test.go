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
	var project, home string
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		in := func(elem ...string) string { return filepath.Join(append([]string{project}, elem...)...) }
		steps := []fakemodel.Reply{
			fakemodel.CallTool("read_file", map[string]any{"file_path": "greet.py"}),
			fakemodel.CallTool("replace", map[string]any{"file_path": in("greet.py"), "instruction": "rename", "old_string": "def greet():", "new_string": "def hello():"}),
			fakemodel.CallTool("replace", map[string]any{"file_path": in("greet.py"), "instruction": "more", "old_string": "def hello():\n    pass", "new_string": "def hello():\n    print('hello')"}),
			fakemodel.CallTool("write_file", map[string]any{"file_path": in("docs", "hello.md"), "content": "# Hello\n"}),
			fakemodel.CallTool("write_file", map[string]any{"file_path": in("..", "outside.txt"), "content": "no\n"}),
			fakemodel.CallTool("run_shell_command", map[string]any{"command": "touch ran"}),
			// The CLI's own directories, which it writes to without asking its
			// client.
			fakemodel.CallTool("write_file", map[string]any{"file_path": filepath.Join(home, ".gemini", "settings.json"), "content": "{}"}),
		}
		if r.Step < len(steps) {
			return steps[r.Step]
		}
		return fakemodel.Say("Renamed it.")
	})
	project, home = w.project, w.home
	before := map[string]string{"greet.py": "def greet():\r\n    pass\r\n", "other.txt": "other\n"}
	for name, text := range before {
		w.file(name, text)
	}
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
	w.wantNothingLeft(c)
}

// The CLI writes its memory and its temporary files by itself, whatever its
// client allows. In change mode it gets a private home, and writing there ends
// the call.
func TestWarmChangeModeSparesTheHome(t *testing.T) {
	var own string
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if r.Step == 0 {
			path := filepath.Join(own, filepath.FromSlash(lastLine(r.Prompt)))
			return fakemodel.CallTool("write_file", map[string]any{"file_path": path, "content": "planted\n"})
		}
		return fakemodel.Say("Done.")
	})
	own = filepath.Join(w.home, ".gemini")
	c := w.bridge()
	for i, name := range []string{"GEMINI.md", "settings.json", "tmp/project/evil.txt"} {
		// The same holds if the workspace is the home itself.
		for j, dir := range []string{w.project, w.home} {
			if testing.Short() && i%2 != j { // each write ends a process
				continue
			}
			seen := len(w.model.Requests())
			o := c.call("query", map[string]any{"prompt": name, "changeMode": true, "workingDirectory": dir})
			if after, _ := os.ReadFile(filepath.Join(own, filepath.FromSlash(name))); strings.Contains(string(after), "planted") {
				t.Errorf("in %s, %s is now %q; the call: %s", dir, name, after, o.text)
			}
			if len(w.model.Requests()) == seen {
				t.Errorf("in %s, the model was not asked for %s: %s", dir, name, o.text)
			}
		}
	}
}

// The .env with the API key was copied into a directory of the process. It must
// be the user's own file there too, and the CLI's tools must not write to it.
func TestWarmChangeModeCopiesNoSecret(t *testing.T) {
	var private string
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if r.Step == 0 {
			return fakemodel.CallTool("write_file", map[string]any{"file_path": filepath.Join(private, ".env"), "content": "PLANTED=1\n"})
		}
		return fakemodel.Say("Done.")
	})
	w.writeHome(".gemini/.env", "MY_API_KEY=very-secret\n")
	c := w.bridge()
	for range 2 { // the second time the model knows the path
		c.call("query", map[string]any{"prompt": "change it", "changeMode": true})
		homes, err := filepath.Glob(filepath.Join(w.tmp(), "pollux-bridge-*", "worker-*", "home", ".gemini"))
		if err != nil || len(homes) == 0 {
			t.Fatalf("there is no private home: %v", err)
		}
		private = homes[0]
	}
	w.wantFile(filepath.Join(w.home, ".gemini", ".env"), "MY_API_KEY=very-secret\n")
	if info, err := os.Lstat(filepath.Join(private, ".env")); err != nil || info.Mode().IsRegular() {
		t.Errorf("the private home holds a copy of .env: %v, %v", info, err)
	}
	w.wantNothingLeft(c)
}
