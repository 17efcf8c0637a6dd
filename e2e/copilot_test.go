package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

// copilotReady appears on the screen when the agent reads its keyboard.
const copilotReady = "/ commands"

// copilotConnects waits until the agent shows the file that the editor has open. While it
// starts, it connects some times.
func (w *world) copilotConnects(e *plugin, cli screen) {
	w.t.Helper()
	e.show(editor.File{Active: true, Path: w.file("open.txt", "")})
	cli.see("@open.txt")
	waitFor(w.t, "the agent", func() bool { return len(e.agents(w.t)) == 1 })
}

// copilotChanges is a model that replaces beta by BETA in a file, or creates it. Several
// files for one word are changed one after the other.
func (w *world) copilotChanges(several map[string][]string) fakemodel.Script {
	change := func(name string) fakemodel.Part {
		path := filepath.Join(w.project, name)
		if strings.HasPrefix(name, "new") {
			return fakemodel.Part{Call: "create", Args: map[string]any{"path": path, "file_text": "one\ntwo"}}
		}
		return fakemodel.Part{Call: "edit", Args: map[string]any{"path": path, "old_str": "beta", "new_str": "BETA"}}
	}
	return changes(func(name string) (parts []fakemodel.Part) {
		names := several[name]
		if strings.HasSuffix(name, ".txt") {
			names = []string{name}
		}
		for _, name := range names {
			parts = append(parts, change(name))
		}
		return parts
	})
}

func (w *world) copilotLocks() []string {
	locks, _ := filepath.Glob(filepath.Join(w.home, ".copilot", "ide", "*.lock"))
	return locks
}

// Copilot CLI, the real one, and a scripted editor.
func TestCopilot(t *testing.T) {
	if !isolated(t) {
		return
	}
	t.Run("session", copilotSession)
}

// copilotSession is one session of an agent, because its start takes longer than all of its
// answers.
func copilotSession(t *testing.T) {
	const bom = "\uFEFF"
	// What it writes, byte for byte.
	written := []struct{ name, before, want string }{
		{"lf.txt", "alpha\nbeta\n", "alpha\nBETA\n"},
		{"bom.txt", bom + "alpha\nbeta\n", bom + "alpha\nBETA\n"},
		{"crlf.txt", "alpha\r\nbeta\r\n", "alpha\r\nBETA\r\n"},
		{"no-last-newline.txt", "alpha\nbeta", "alpha\nBETA"},
		{"mixed.txt", "alpha\r\nbeta\ngamma\r\n", "alpha\r\nBETA\ngamma\r\n"},
		{"bom-crlf.txt", bom + "alpha\r\nbeta\r\n", bom + "alpha\r\nBETA\r\n"},
		{"new.txt", "", "one\ntwo"},
	}
	if testing.Short() { // the last ones
		written = written[3:]
	}
	var names []string
	for _, test := range written {
		names = append(names, test.name)
	}
	var w *world
	w = newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		switch {
		case !strings.Contains(r.Prompt, "which problems"):
			return w.copilotChanges(map[string][]string{"bytes": names})(r)
		case r.Step == 0:
			return fakemodel.CallTool("ide-get_diagnostics", map[string]any{})
		}
		return fakemodel.Say("There is one problem.")
	})
	bin, env := w.configure("copilot")
	path := w.file("a.txt", "alpha\nbeta\ngamma\n")
	config := filepath.Join(".copilot", "config.json")
	w.replaceHome(config, `"trustedFolders":`, `"others":`)
	e := w.edit(func(p *editor.InitializeParams) { p.Diff = false })
	waitFor(t, "the lock", func() bool { return len(w.copilotLocks()) > 0 })
	cli := w.screen(env, bin)
	// proposed asks an agent for a change, and returns it.
	proposed := func(cli screen, name string) editor.Diff {
		t.Helper()
		cli.see(copilotReady)
		cli.ask("change " + name)
		d := next(t, "diff", e.opened)
		if filepath.Base(d.Path) != name {
			t.Fatalf("the diff is %+v, want one of %s", d, name)
		}
		return d
	}
	// rejected waits until an agent has received a rejection.
	rejected := func(cli screen, d editor.Diff) {
		t.Helper()
		e.reject(d)
		cli.seeBelow("change "+filepath.Base(d.Path), "cancelled by user")
	}

	// The lock does not answer the question whether to trust the folder.
	step(t, "trust", func(t *testing.T) {
		cli.see("Do you trust the files in this folder?")
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		cli.see("Do you trust the files in this folder?")
		cli.press("Enter")
		cli.see(copilotReady)
		w.copilotConnects(e, cli)
	})
	// With nothing that shows changes, the agent's own question counts.
	step(t, "no view", func(t *testing.T) {
		path := w.file("unseen.txt", "beta\n")
		cli.ask("change unseen.txt")
		cli.see("Do you want to edit")
		cli.press("Enter")
		cli.see(changedFile("unseen.txt"))
		w.wantFile(path, "BETA\n")
		if len(e.opened) > 0 {
			t.Errorf("a diff opened: %+v", next(t, "diff", e.opened))
		}
	})
	// The agent does not notice that the companion has restarted. Its own question works,
	// and /ide connects it again.
	step(t, "restart", func(t *testing.T) {
		path := w.file("again.txt", "beta\n")
		e.kill()
		e = w.edit(func(p *editor.InitializeParams) { p.Diagnostics = true })
		waitFor(t, "one lock", func() bool { return len(w.copilotLocks()) == 1 })
		cli.ask("/ide")
		cli.see("Select an IDE")
		cli.press("Enter")
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		d := proposed(cli, "again.txt")
		e.accept(d, d.Proposed)
		cli.see(changedFile("again.txt"))
		w.wantFile(path, "BETA\n")
	})
	(&patient{world: w, editor: e, dir: w.project, bin: filepath.Dir(bin)}).wantOf("copilot")
	e.mu.Lock()
	e.report = func(editor.DiagnosticsParams) editor.DiagnosticsResult {
		start, end := editor.Cursor{Line: 1, Character: 1}, editor.Cursor{Line: 1, Character: 6}
		return editor.DiagnosticsResult{Files: []editor.FileDiagnostics{{Path: path, Diagnostics: []editor.Diagnostic{{
			Range: editor.Range{Start: start, End: end}, Severity: editor.SeverityError, Message: "alpha is bad", Source: "lint",
		}}}}}
	}
	e.mu.Unlock()
	step(t, "context", func(t *testing.T) {
		secret := w.file(".env", "TOKEN=hidden-word\n")
		e.show(editor.File{Active: true, Path: secret, Cursor: &editor.Cursor{Line: 1, Character: 1}, Selection: "hidden-word"})
		e.show(editor.File{
			Active: true, Path: path, Cursor: &editor.Cursor{Line: 3, Character: 6}, Selection: "beta\ngamma",
			Range: &editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 3, Character: 6}},
		})
		cli.see("@a.txt")
		cli.ask("hello")
		r := w.prompted("hello")
		if !strings.Contains(r.Text, "File: a.txt") || !strings.Contains(r.Text, "beta\ngamma") || strings.Contains(r.Text, "hidden-word") {
			t.Errorf("the model got %s", r.Text)
		}
		cli.see(after)
	})
	step(t, "diagnostics", func(t *testing.T) {
		cli.ask("which problems are there")
		r, err := w.model.Wait(w.context(), func(r fakemodel.Request) bool {
			return r.Step > 0 && strings.Contains(r.Prompt, "which problems")
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Results) != 1 || !strings.Contains(string(r.Results[0].Response), "alpha is bad") {
			t.Errorf("the model got %+v", r.Results)
		}
		cli.see("There is one problem.")
	})
	// TestEditorAgents says yes in the terminal.
	step(t, "no in the terminal", func(t *testing.T) {
		path := w.file("no.txt", "beta\n")
		d := proposed(cli, "no.txt")
		cli.seeBelow("change no.txt", "Do you want to edit")
		cli.press("Escape")
		if c := e.closeOf(d.ID); c.Reason != editor.ReasonClosed {
			t.Errorf("closed: %+v", c)
		}
		cli.see(copilotReady)
		w.wantFile(path, "beta\n")
	})
	// The agent would write its own text instead.
	step(t, "edited", func(t *testing.T) {
		path := w.file("edited.txt", "alpha\nbeta\ngamma\n")
		d := proposed(cli, "edited.txt")
		if d.Original != "alpha\nbeta\ngamma\n" || d.Proposed != "alpha\nBETA\ngamma\n" || d.Agent != "Copilot CLI" || d.ReadOnly == "" {
			t.Errorf("the diff is %+v", d)
		}
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"})
		if err != nil || res.Status != editor.StatusRefused || !strings.Contains(res.Message, "ignores edits") {
			t.Errorf("%+v, %v", res, err)
		}
		e.accept(d, d.Proposed)
		cli.see(changedFile("edited.txt"))
		w.wantFile(path, "alpha\nBETA\ngamma\n")
		e.wantWritten(d)
	})
	// The agent would overwrite what has changed.
	step(t, "changed on disk", func(t *testing.T) {
		path := w.file("theirs.txt", "beta\n")
		d := proposed(cli, "theirs.txt")
		w.file("theirs.txt", "theirs\n")
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Proposed})
		if err != nil || res.Status != editor.StatusRefused || res.Version != "" || !strings.Contains(res.Message, "overwrite") {
			t.Errorf("%+v, %v", res, err)
		}
		rejected(cli, d)
		w.wantFile(path, "theirs\n")
	})
	step(t, "bytes", func(t *testing.T) {
		for _, test := range written {
			if test.before != "" {
				w.file(test.name, test.before)
			}
		}
		cli.see(copilotReady)
		cli.ask("change bytes")
		for _, test := range written {
			d := next(t, "diff", e.opened)
			if filepath.Base(d.Path) != test.name || d.Original != test.before || d.Proposed != test.want || d.Exists != (test.before != "") {
				t.Fatalf("the diff is %+v, want %q of %s", d, test.want, test.name)
			}
			// A view may show other line endings.
			d.Proposed = strings.ReplaceAll(d.Proposed, "\r\n", "\n")
			e.accept(d, d.Proposed)
			e.wantWritten(d)
			w.wantFile(d.Path, test.want)
		}
		cli.see(changedFile("bytes"))
	})
	step(t, "send", func(t *testing.T) {
		cli.see(copilotReady)
		w.sends(t, cli, "Copilot CLI", "@a.txt lines 2-3")
		cli.seeBelow("why is that so", after)
	})
	// Another agent, which the test plays, gets its own answer.
	step(t, "two agents", func(t *testing.T) {
		path := w.file("both.txt", "beta\n")
		first := proposed(cli, "both.txt")
		theirs := w.copilotClient().openDiff(path, "theirs\n")
		second := next(t, "diff", e.opened)
		if second.Path != path || second.Proposed != "theirs\n" {
			t.Fatalf("the diff is %+v", second)
		}
		e.accept(second, second.Proposed)
		saved(t, theirs)
		rejected(cli, first)
		w.wantFile(path, "beta\n")
	})
	// A killed agent's proposal is kept.
	step(t, "killed", func(t *testing.T) {
		path := w.file("kept.txt", "beta\n")
		d := proposed(cli, "kept.txt")
		kill(cli.PID)
		e.waitState(d, editor.StateOrphaned)
		if agents := e.agents(t); len(agents) != 1 {
			t.Errorf("agents %v", agents)
		}
		if res, err := e.Save(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Proposed}); err != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		w.wantFile(path, "BETA\n")
	})
}
