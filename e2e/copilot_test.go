package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

// copilotCommand returns the command. It skips the test if Copilot CLI is not installed.
func copilotCommand(t *testing.T) string {
	t.Helper()
	return program(t, "copilot")
}

// newCopilotWorld makes a world in which the agent trusts the project.
func newCopilotWorld(t *testing.T, script fakemodel.Script) *world {
	t.Helper()
	w := newWorld(t, script)
	w.installCopilot()
	return w
}

// installCopilot writes Copilot CLI's settings. It trusts the project.
func (w *world) installCopilot() {
	w.t.Helper()
	w.configure("copilot")
}

// copilotEnv returns the variables that lead the agent to the model.
func (w *world) copilotEnv() []string { return w.user().CopilotEnv() }

// copilotReady appears on the screen when the agent reads its keyboard.
const copilotReady = "/ commands"

// copilot starts Copilot CLI.
func (w *world) copilot(args ...string) screen {
	w.t.Helper()
	s := w.screen(w.copilotEnv(), append([]string{copilotCommand(w.t)}, args...)...)
	s.see(copilotReady)
	return s
}

// copilotInEditor starts a scripted editor, and Copilot CLI connected to it.
func (w *world) copilotInEditor() (*plugin, screen) {
	w.t.Helper()
	e := w.edit(nil)
	cli := w.copilot()
	w.copilotConnects(e, cli, 1)
	return e, cli
}

// copilotConnects waits until the agent shows the file that the editor has open. While it
// starts, it connects some times.
func (w *world) copilotConnects(e *plugin, cli screen, count int) {
	w.t.Helper()
	e.show(w, editor.File{Path: w.file("open.txt", "")})
	cli.see("@open.txt")
	waitFor(w.t, "the agent", func() bool { return len(e.agents(w.t)) == count })
}

// copilotCalls is a model that calls a tool on a file.
func copilotCalls(path *string, tool string, args map[string]any) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		if r.Step > 0 {
			return fakemodel.Say(after)
		}
		with := map[string]any{"path": *path}
		for k, v := range args {
			with[k] = v
		}
		return fakemodel.CallTool(tool, with)
	}
}

// copilotEdits is a model that replaces beta by BETA.
func copilotEdits(path *string) fakemodel.Script {
	return copilotCalls(path, "edit", map[string]any{"old_str": "beta", "new_str": "BETA"})
}

func (w *world) copilotLocks() []string {
	locks, _ := filepath.Glob(filepath.Join(w.home, ".copilot", "ide", "*.lock"))
	return locks
}

// show makes a file the only one that is open.
func (e *plugin) show(w *world, file editor.File) {
	w.t.Helper()
	file.Active = true
	if err := e.Update(w.context(), editor.Snapshot{Files: []editor.File{file}}); err != nil {
		w.t.Fatal(err)
	}
}

// accepted accepts a diff as it is proposed.
func (e *plugin) accepted(w *world, d editor.Diff) {
	w.t.Helper()
	res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Proposed})
	if err != nil || res.Status != editor.StatusAccepted {
		w.t.Fatalf("%+v, %v", res, err)
	}
}

// Copilot CLI, the real one, and a scripted editor.
func TestCopilot(t *testing.T) {
	copilotCommand(t)
	if !isolated(t) {
		return
	}
	t.Run("context", func(t *testing.T) {
		w := newCopilotWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) })
		path := w.file("a.txt", "alpha\nbeta\ngamma\n")
		secret := w.file(".env", "TOKEN=hidden-word\n")
		e, cli := w.copilotInEditor()
		e.show(w, editor.File{Path: secret, Cursor: &editor.Cursor{Line: 1, Character: 1}, Selection: "hidden-word"})
		e.show(w, editor.File{
			Path: path, Cursor: &editor.Cursor{Line: 3, Character: 6}, Selection: "beta\ngamma",
			Range: &editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 3, Character: 6}},
		})
		cli.see("@a.txt")
		cli.ask("hello")
		r, err := w.model.Wait(w.context(), func(r fakemodel.Request) bool { return strings.Contains(r.Prompt, "hello") })
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Text, "File: a.txt") || !strings.Contains(r.Text, "beta\ngamma") || strings.Contains(r.Text, "hidden-word") {
			t.Errorf("the model got %s", r.Text)
		}
	})
	t.Run("accept", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "alpha\nbeta\ngamma\n")
		e, cli := w.copilotInEditor()
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		if d.Original != "alpha\nbeta\ngamma\n" || d.Proposed != "alpha\nBETA\ngamma\n" || d.Agent != "Copilot CLI" || d.ReadOnly == "" {
			t.Errorf("the diff is %+v", d)
		}
		e.accepted(w, d)
		cli.see(after)
		w.wantFile(path, "alpha\nBETA\ngamma\n")
		e.wantWritten()
	})
	t.Run("reject", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e, cli := w.copilotInEditor()
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		if err := e.Reject(w.context(), d.ID); err != nil {
			t.Fatal(err)
		}
		cli.see("cancelled by user")
		w.wantFile(path, "beta\n")
	})
	for key, want := range map[string]string{"Enter": "BETA\n", "Escape": "beta\n"} {
		t.Run("terminal, "+key, func(t *testing.T) {
			var path string
			w := newCopilotWorld(t, copilotEdits(&path))
			path = w.file("a.txt", "beta\n")
			e, cli := w.copilotInEditor()
			cli.ask("change it")
			next(t, "diff", e.opened)
			cli.see("Do you want to edit")
			cli.press(key)
			if c := next(t, "close", e.closed); c.Reason != editor.ReasonClosed {
				t.Errorf("closed: %+v", c)
			}
			cli.see(copilotReady)
			waitFor(t, "the answer", func() bool {
				data, err := os.ReadFile(path)
				return err == nil && string(data) == want
			})
		})
	}
	t.Run("lock", func(t *testing.T) {
		w := newCopilotWorld(t, nil)
		e := w.edit(nil)
		waitFor(t, "the lock", func() bool { return len(w.copilotLocks()) == 1 })
		lock := w.copilotLocks()[0]
		for path, mode := range map[string]os.FileMode{lock: 0o600, filepath.Dir(lock): 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%v, %v", info, err)
			}
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the lock again", func() bool { return len(w.copilotLocks()) == 1 })
		e.Client.Close()
		e.cmd.Wait()
		if locks := w.copilotLocks(); len(locks) > 0 {
			t.Errorf("%v is still there", locks)
		}
	})
	// The lock does not answer the question whether to trust the folder.
	t.Run("trust", func(t *testing.T) {
		w := newCopilotWorld(t, nil)
		w.writeHome(filepath.Join(".copilot", "config.json"), "{}")
		e := w.edit(nil)
		waitFor(t, "the lock", func() bool { return len(w.copilotLocks()) == 1 })
		cli := w.screen(w.copilotEnv(), copilotCommand(t))
		cli.see("Do you trust the files in this folder?")
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		cli.see("Do you trust the files in this folder?")
	})
	t.Run("diagnostics", func(t *testing.T) {
		w := newCopilotWorld(t, func(r fakemodel.Request) fakemodel.Reply {
			if r.Step > 0 || !strings.Contains(r.Prompt, "problems") {
				return fakemodel.Say(after)
			}
			return fakemodel.CallTool("ide-get_diagnostics", map[string]any{})
		})
		path := w.file("a.txt", "alpha\n")
		e := w.edit(func(p *editor.InitializeParams) { p.Diagnostics = true })
		e.mu.Lock()
		e.report = func(editor.DiagnosticsParams) editor.DiagnosticsResult {
			start, end := editor.Cursor{Line: 1, Character: 1}, editor.Cursor{Line: 1, Character: 6}
			return editor.DiagnosticsResult{Files: []editor.FileDiagnostics{{Path: path, Diagnostics: []editor.Diagnostic{{
				Range: editor.Range{Start: start, End: end}, Severity: editor.SeverityError, Message: "alpha is bad", Source: "lint",
			}}}}}
		}
		e.mu.Unlock()
		cli := w.copilot()
		w.copilotConnects(e, cli, 1)
		cli.ask("which problems are there")
		r, err := w.model.Wait(w.context(), func(r fakemodel.Request) bool { return r.Step > 0 })
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Results) != 1 || !strings.Contains(string(r.Results[0].Response), "alpha is bad") {
			t.Errorf("the model got %+v", r.Results)
		}
	})
	t.Run("run", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		bin := copilotCommand(t)
		env := append(w.copilotEnv(), "PATH="+filepath.Dir(bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
		cli := w.screen(env, polluxBinary, "run", "--no-browser", "--", "copilot")
		waitFor(t, "the agent", func() bool { return strings.Contains(w.pollux("status"), "Copilot CLI "+copilotVersion) })
		cli.see(copilotReady)
		cli.ask("change it")
		waitFor(t, "the diff", func() bool { return strings.Contains(w.pollux("status"), path+"  of Copilot CLI, pending for") })
		cli.see("Do you want to edit")
		cli.press("Enter")
		cli.see(after)
		w.wantFile(path, "BETA\n")
	})
}

// What Copilot CLI writes, byte for byte.
func TestCopilotWrites(t *testing.T) {
	copilotCommand(t)
	if !isolated(t) {
		return
	}
	const bom = "\uFEFF"
	for _, test := range []struct{ name, before, want string }{
		{"LF", "alpha\nbeta\n", "alpha\nBETA\n"},
		{"no last newline", "alpha\nbeta", "alpha\nBETA"},
		{"CRLF", "alpha\r\nbeta\r\n", "alpha\r\nBETA\r\n"},
		{"mixed", "alpha\r\nbeta\ngamma\r\n", "alpha\r\nBETA\ngamma\r\n"},
		{"BOM", bom + "alpha\nbeta\n", bom + "alpha\nBETA\n"},
		{"BOM and CRLF", bom + "alpha\r\nbeta\r\n", bom + "alpha\r\nBETA\r\n"},
		{"new file", "", "one\ntwo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var path string
			script := copilotEdits(&path)
			if test.before == "" {
				script = copilotCalls(&path, "create", map[string]any{"file_text": test.want})
			}
			w := newCopilotWorld(t, script)
			if path = filepath.Join(w.project, "a.txt"); test.before != "" {
				w.file("a.txt", test.before)
			}
			e, cli := w.copilotInEditor()
			cli.ask("change it")
			d := next(t, "diff", e.opened)
			if d.Original != test.before || d.Proposed != test.want || d.Exists != (test.before != "") {
				t.Errorf("the diff is %+v, want %q", d, test.want)
			}
			// A view may show other line endings.
			d.Proposed = strings.ReplaceAll(d.Proposed, "\r\n", "\n")
			e.accepted(w, d)
			cli.see(after)
			w.wantFile(path, test.want)
			e.wantWritten()
		})
	}
}

// What Copilot CLI would take for something else than the user meant.
func TestCopilotTraps(t *testing.T) {
	copilotCommand(t)
	if !isolated(t) {
		return
	}
	// The agent would write its own text instead.
	t.Run("edited", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e, cli := w.copilotInEditor()
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"})
		if err != nil || res.Status != editor.StatusRefused || !strings.Contains(res.Message, "ignores edits") {
			t.Errorf("%+v, %v", res, err)
		}
		e.accepted(w, d)
		cli.see(after)
		w.wantFile(path, "BETA\n")
	})
	// The agent would overwrite what has changed.
	t.Run("changed on disk", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e, cli := w.copilotInEditor()
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		w.file("a.txt", "theirs\n")
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Proposed})
		if err != nil || res.Status != editor.StatusRefused || res.Version != "" || !strings.Contains(res.Message, "overwrite") {
			t.Errorf("%+v, %v", res, err)
		}
		if err := e.Reject(w.context(), d.ID); err != nil {
			t.Fatal(err)
		}
		cli.see("cancelled by user")
		w.wantFile(path, "theirs\n")
	})
	// With nothing that shows changes, the agent's own question counts.
	t.Run("no view", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e := w.edit(func(p *editor.InitializeParams) { p.Diff = false })
		cli := w.copilot()
		w.copilotConnects(e, cli, 1)
		cli.ask("change it")
		cli.see("Do you want to edit")
		cli.press("Enter")
		cli.see(after)
		w.wantFile(path, "BETA\n")
	})
	t.Run("two agents", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e, one := w.copilotInEditor()
		two := w.copilot()
		w.copilotConnects(e, two, 2)
		one.ask("change it")
		first := next(t, "diff", e.opened)
		two.ask("change it")
		second := next(t, "diff", e.opened)
		if err := e.Reject(w.context(), first.ID); err != nil {
			t.Fatal(err)
		}
		one.see("cancelled by user")
		e.accepted(w, second)
		two.see(after)
		w.wantFile(path, "BETA\n")
	})
	// A killed agent's proposal is kept.
	t.Run("killed", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e, cli := w.copilotInEditor()
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		kill(cli.PID)
		for c := range e.events {
			if c.State == editor.StateOrphaned {
				break
			}
		}
		if agents := e.agents(t); len(agents) > 0 {
			t.Errorf("agents %v", agents)
		}
		if res, err := e.Save(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Proposed}); err != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		w.wantFile(path, "BETA\n")
	})
	// The agent does not notice that the companion has restarted. Its own question works,
	// and /ide connects it again.
	t.Run("restart", func(t *testing.T) {
		var path string
		w := newCopilotWorld(t, copilotEdits(&path))
		path = w.file("a.txt", "beta\n")
		e, cli := w.copilotInEditor()
		e.cmd.Process.Kill()
		e.cmd.Wait()
		e = w.edit(nil)
		waitFor(t, "one lock", func() bool { return len(w.copilotLocks()) == 1 })
		cli.ask("/ide")
		cli.see("Select an IDE")
		cli.press("Enter")
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		cli.see(copilotReady)
		cli.ask("change it")
		e.accepted(w, next(t, "diff", e.opened))
		cli.see(after)
		w.wantFile(path, "BETA\n")
	})
}
