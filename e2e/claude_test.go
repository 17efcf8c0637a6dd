package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/editors/editortest"
	"pollux/internal/agent/gemini/fakemodel"
	"pollux/internal/editor"
)

const claudeVersion = "2.1.330"

const claudeKey = "sk-ant-api03-none-none-none-none-none-0000"

// A screen is a terminal whose program moves the cursor instead of writing spaces.
type screen struct {
	*editortest.Screen
	w *world
}

func (s screen) see(text string) {
	s.w.t.Helper()
	if err := s.Wait(s.w.context(), text); err != nil {
		s.w.t.Fatal(err)
	}
}

// ask types a line, and sends it when the program has shown it.
func (s screen) ask(line string) {
	s.w.t.Helper()
	if err := s.Type(line); err != nil {
		s.w.t.Fatal(err)
	}
	s.see(line)
	s.press("Enter")
}

func (s screen) press(keys ...string) {
	s.w.t.Helper()
	if err := s.Keys(keys...); err != nil {
		s.w.t.Fatal(err)
	}
}

// screen starts a program in a terminal.
func (w *world) screen(env []string, argv ...string) screen {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "px")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := editortest.NewScreen(dir, w.project, append(slices.Clone(w.env), env...), 120, 40, argv...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the screen of %s:\n%s", filepath.Base(argv[0]), s.Text())
		}
		s.Close()
		waitGone(w.t, s.PID)
	})
	return screen{s, w}
}

// claude starts Claude Code. It asks before it edits a file.
func (w *world) claude(env []string, args ...string) screen {
	w.t.Helper()
	bin, own := w.installClaude()
	s := w.screen(append(env, own...), append([]string{bin, "--permission-mode", "default"}, args...)...)
	s.see("? for shortcuts")
	return s
}

// installClaude writes Claude Code's settings. It returns the command, and the
// variables that lead it to the model.
func (w *world) installClaude() (bin string, env []string) {
	w.t.Helper()
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	bin = installed(w.t, "claude-"+claudeVersion, "node_modules", "@anthropic-ai", "claude-code-linux-"+arch, "claude")
	config := map[string]any{
		"numStartups": 5, "hasCompletedOnboarding": true, "lastOnboardingVersion": claudeVersion, "theme": "dark",
		"autoUpdates":                   false,
		"customApiKeyResponses":         map[string]any{"approved": []string{claudeKey[len(claudeKey)-20:]}},
		"shiftEnterKeyBindingInstalled": true,
		"projects": map[string]any{w.project: map[string]any{
			"hasTrustDialogAccepted": true, "projectOnboardingSeenCount": 5, "hasCompletedProjectOnboarding": true,
		}},
	}
	data, err := json.Marshal(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.writeHome(".claude.json", string(data))
	return bin, []string{"ANTHROPIC_BASE_URL=" + w.model.URL, "ANTHROPIC_API_KEY=" + claudeKey,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
		"CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL=1"}
}

// claudeEdits is a model that reads a file and then calls a tool on it.
func claudeEdits(path *string, tool string, args map[string]any) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		switch r.Step {
		case 0:
			return fakemodel.CallTool("Read", map[string]any{"file_path": *path})
		case 1:
			with := map[string]any{"file_path": *path}
			for k, v := range args {
				with[k] = v
			}
			return fakemodel.CallTool(tool, with)
		}
		return fakemodel.Say(after)
	}
}

func (w *world) claudeLocks() []string {
	locks, _ := filepath.Glob(filepath.Join(w.home, ".claude", "ide", "*.lock"))
	return locks
}

// Claude Code, the real one, and a scripted editor.
func TestClaude(t *testing.T) {
	if !isolated(t) {
		return
	}
	t.Run("context", func(t *testing.T) {
		w := newClaudeWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) })
		path := w.file("a.txt", "alpha\nbeta\ngamma\n")
		e := w.edit(nil)
		if err := e.Update(w.context(), editor.Snapshot{Files: []editor.File{{
			Path: path, Active: true, Cursor: &editor.Cursor{Line: 3, Character: 1}, Selection: "beta\ngamma",
			Range: &editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 3, Character: 6}},
		}}}); err != nil {
			t.Fatal(err)
		}
		cli := w.claude(e.env())
		cli.see("2 lines selected")
		cli.ask("hello")
		r, err := w.model.Wait(w.context(), func(r fakemodel.Request) bool { return strings.Contains(r.Text, "hello") })
		if err != nil {
			t.Fatal(err)
		}
		if all := r.System + r.Text; !strings.Contains(all, "lines 2 to 3 from "+path) || !strings.Contains(all, "beta\ngamma") {
			t.Errorf("the model did not get the selection: %s", all)
		}
	})
	t.Run("accept", func(t *testing.T) {
		var path string
		w := newClaudeWorld(t, claudeEdits(&path, "Edit", map[string]any{"old_string": "beta", "new_string": "BETA"}))
		path = w.file("a.txt", "alpha\nbeta\ngamma\n")
		e := w.edit(nil)
		cli := w.claude(e.env())
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		if d.Original != "alpha\nbeta\ngamma\n" || d.Proposed != "alpha\nBETA\ngamma\n" || d.Agent != "Claude Code" {
			t.Errorf("the diff is %+v", d)
		}
		if _, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "alpha\nmine\ngamma\n"}); err != nil {
			t.Fatal(err)
		}
		cli.see(after)
		w.wantFile(path, "alpha\nmine\ngamma\n")
		if c := next(t, "close", e.closed); c.Reason != editor.ReasonAccepted {
			t.Errorf("closed: %+v", c)
		}
	})
	t.Run("reject", func(t *testing.T) {
		var path string
		w := newClaudeWorld(t, claudeEdits(&path, "Write", map[string]any{"content": "new\n"}))
		path = w.file("a.txt", "alpha\n")
		e := w.edit(nil)
		cli := w.claude(e.env())
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		cli.ask("change it")
		d := next(t, "diff", e.opened)
		if err := e.Reject(w.context(), d.ID); err != nil {
			t.Fatal(err)
		}
		cli.see("Rejected write to a.txt")
		w.wantFile(path, "alpha\n")
	})
	t.Run("terminal", func(t *testing.T) {
		var path string
		w := newClaudeWorld(t, claudeEdits(&path, "Write", map[string]any{"content": "new\n"}))
		path = w.file("a.txt", "alpha\n")
		e := w.edit(nil)
		cli := w.claude(e.env())
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		cli.ask("change it")
		next(t, "diff", e.opened)
		cli.see("Opened changes in")
		cli.press("Enter")
		if c := next(t, "close", e.closed); c.Reason != editor.ReasonClosed {
			t.Errorf("closed: %+v", c)
		}
		cli.see(after)
		w.wantFile(path, "new\n")
	})
	t.Run("lock", func(t *testing.T) {
		w := newClaudeWorld(t, nil)
		e := w.edit(nil)
		waitFor(t, "the lock", func() bool { return len(w.claudeLocks()) == 1 })
		lock := w.claudeLocks()[0]
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the lock again", func() bool { return len(w.claudeLocks()) == 1 })
		e.Client.Close()
		e.cmd.Wait()
		if locks := w.claudeLocks(); len(locks) > 0 {
			t.Errorf("%v is still there", locks)
		}
	})
	// Claude Code connects to neither of two locks for a folder, unless it knows the
	// port.
	t.Run("run", func(t *testing.T) {
		var path string
		w := newClaudeWorld(t, claudeEdits(&path, "Edit", map[string]any{"old_string": "beta", "new_string": "BETA"}))
		path = w.file("a.txt", "alpha\nbeta\n")
		if err := os.Mkdir(filepath.Join(w.home, ".claude", "ide"), 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := json.Marshal(map[string]any{
			"pid": os.Getpid(), "workspaceFolders": []string{w.project}, "ideName": "Other", "transport": "ws", "authToken": "x",
		})
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(".claude", "ide", "1.lock")
		w.writeHome(other, string(lock))
		bin, env := w.installClaude()
		env = append(env, "PATH="+filepath.Dir(bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
		cli := w.screen(env, polluxBinary, "run", "--no-browser", "--", "claude", "--permission-mode", "default")
		cli.see("? for shortcuts")
		var all []struct {
			editor.Status
			Socket string
		}
		waitFor(t, "the agent", func() bool {
			if err := json.Unmarshal([]byte(w.pollux("status", "--json")), &all); err != nil {
				t.Fatal(err)
			}
			return len(all) == 1 && len(all[0].Clients) == 1
		})
		if c := all[0].Clients[0]; c.Name != "Claude Code" || c.Version != claudeVersion {
			t.Errorf("connected: %+v", c)
		}
		if _, err := os.Stat(filepath.Join(w.home, other)); err != nil {
			t.Errorf("the other lock: %v", err)
		}
		cli.ask("change it")
		waitFor(t, "the diff", func() bool { return strings.Contains(w.pollux("status"), path+"  pending for") })
		self := editor.Implementation{Name: "test", Version: "1"}
		if err := editor.WithClient(w.context(), all[0].Socket, self, func(ctx context.Context, c *editor.Client) error {
			diffs, err := c.Diffs(ctx)
			if err != nil {
				return err
			}
			_, err = c.Accept(ctx, editor.DiffAccept{ID: diffs[0].ID, Content: diffs[0].Text()})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		cli.see(after)
		w.wantFile(path, "alpha\nBETA\n")
	})
}

func newClaudeWorld(t *testing.T, script fakemodel.Script) *world {
	w := newWorld(t, script)
	if err := os.MkdirAll(filepath.Join(w.home, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

// agents returns the agents that are connected.
func (e *plugin) agents(t *testing.T) []editor.Agent {
	st, err := e.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Clients
}
