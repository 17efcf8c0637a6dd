package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

// startTimeout limits the start of opencode on a busy machine: it takes 10 s of CPU time.
const startTimeout = 4 * time.Minute

// opencode starts opencode.
func (w *world) opencode(env []string, argv ...string) screen {
	w.t.Helper()
	s := w.screen(env, argv...)
	ctx, cancel := context.WithTimeout(w.t.Context(), startTimeout)
	defer cancel()
	if err := s.Wait(ctx, "Ask anything"); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// opencode, the real one, and a scripted editor. The user has chosen no mode, and the repository
// allows opencode to write: `pollux run` starts it so that it asks.
func TestOpencode(t *testing.T) {
	if !isolated(t) {
		return
	}
	var created string
	w := newClaudeWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Prompt, "write it") && r.Step == 0 {
			return fakemodel.CallTool("write", map[string]any{"filePath": created, "content": "new\n"})
		}
		return fakemodel.Say(after)
	})
	path := w.file("a.txt", "alpha\nbeta\ngamma\n")
	created = filepath.Join(w.project, "new.txt")
	w.file("b.txt", "alpha\nbeta\ngamma\n")
	e := w.edit(nil)
	e.show(editor.File{
		Path: path, Active: true, Cursor: &editor.Cursor{Line: 3, Character: 6}, Selection: "beta\ngamma",
		Range: &editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 3, Character: 6}},
	})
	bin, env := w.configure("opencode")
	w.replaceHome(".config/opencode/opencode.json", `"permission":{"bash":"ask","edit":"ask"},`, "")
	w.file("opencode.json", `{"permission": {"edit": "allow"}, "agent": {"build": {"permission": {"edit": "ask", "*": "allow"}}}}`)
	// With the variable of another companion, or of an IDE, it never connects.
	env = append(env, "CLAUDE_CODE_SSE_PORT=1", "PATH="+filepath.Dir(bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
	cli := w.opencode(env, polluxBinary, "run", "--attach", "--", "opencode")

	// The context reaches the model, with the right lines.
	cli.see("a.txt#2-3")
	cli.ask("hello")
	r := w.wantPrompt("hello")
	if !strings.Contains(r.Text, "#2-3 from \""+path+"\"") || !strings.Contains(r.Text, "beta\ngamma") {
		t.Errorf("the model did not receive the selection: %s", r.Text)
	}
	cli.see(after)
	a := e.agents(t)
	if len(a) != 1 || a[0].Name != "opencode" || a[0].Version != "" {
		t.Errorf("connected: %+v", a)
	}
	if got := w.pollux("status"); !strings.Contains(got, "no review: it asks about changes in its own terminal") ||
		strings.Contains(got, "without asking") {
		t.Errorf("status prints %s", got)
	}

	// It asks in its terminal, and proposes nothing.
	cli.ask("write it")
	cli.see("Permission required")
	if _, err := os.Stat(created); err == nil {
		t.Error("the file was written before the answer")
	}
	if st, err := e.Status(t.Context()); err != nil || len(st.Diffs) > 0 {
		t.Errorf("%+v, %v", st.Diffs, err)
	}
	cli.press("Enter")
	waitFor(t, "the new file", func() bool { _, err := os.Stat(created); return err == nil })

	// It takes mentions of lines, and the numbers as they are. Without lines, it receives
	// the name as text.
	waitFor(t, "the process", func() bool {
		all := e.agents(t)
		return len(all) == 1 && slices.Contains(children(t, cli.PID), all[0].PID) && all[0].Dir == w.project
	})
	cli.seeBelow("write it", after)
	w.pollux("send", "b.txt")
	cli.seeBelow(after, "@b.txt")
	cli.press("C-u")
	waitFor(t, "the empty line", func() bool { return !strings.Contains(cli.Text(), "@b.txt") })
	if out := w.pollux("send", "b.txt:2-3"); out != "Sent to opencode.\n" {
		t.Errorf("it says %q", out)
	}
	cli.seeBelow(after, "@b.txt#2-3")
	cli.press("C-u")
	waitFor(t, "the empty line", func() bool { return !strings.Contains(cli.Text(), "@b.txt#2-3") })
	// It attaches no file that is pasted.
	w.pollux("send", "b.txt:2-3", "why?")
	w.wantPrompt("@b.txt#L2-3: why?")

	// It finds a companion that has started again.
	e.kill()
	e = w.edit(nil)
	waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
}
