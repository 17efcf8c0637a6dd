package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"pollux/editors/editortest"
	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

func TestExplore(t *testing.T) {
	if !isolated(t) {
		return
	}
	t.Run("chip", func(t *testing.T) {
		w := newClaudeWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) })
		path := w.file("a.txt", "alpha\nbeta\ngamma\n")
		e := w.edit(nil)
		e.Update(w.context(), editor.Snapshot{Files: []editor.File{{Path: path, Active: true, Cursor: &editor.Cursor{Line: 2, Character: 1}}}})
		bin, own := w.installClaude()
		dir, _ := os.MkdirTemp("", "px")
		s, err := editortest.NewScreen(dir, w.project, append(append(w.env, e.env()...), own...), 60, 30, bin, "--permission-mode", "default")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		time.Sleep(4 * time.Second)
		t.Logf("%q", s.Text())
		t.Log(s.Text())
	})
	t.Run("opencode", func(t *testing.T) {
		w := newClaudeWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) })
		path := w.file("a.txt", "alpha\nbeta\ngamma\n")
		e := w.edit(nil)
		bin := installed(t, "opencode-1.18.33", "node_modules", "opencode-linux-x64", "bin", "opencode")
		w.file("opencode.json", `{"autoupdate":false,"share":"disabled","provider":{"fake":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"`+w.model.URL+`/v1","apiKey":"x"},"models":{"m":{"name":"m"}}}},"model":"fake/m"}`)
		s := w.screen(append(e.env(), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"), bin)
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		time.Sleep(time.Second)
		t.Logf("%+v pane %d", e.agents(t), s.PID)
		t.Log(s.Text())
		var res editor.SendResult
		for _, p := range []editor.SendParams{
			{PromptParams: editor.PromptParams{Path: path, Line: 2, EndLine: 3}},
			{PromptParams: editor.PromptParams{Path: path, Line: 2}},
			{PromptParams: editor.PromptParams{Path: path}},
		} {
			err := e.Call(t.Context(), editor.MethodSend, p, &res)
			time.Sleep(time.Second)
			t.Logf("%+v %v\n%s", res, err, s.Text())
		}
		s.press("C-u")
		time.Sleep(time.Second)
		err := e.Call(t.Context(), editor.MethodSend, editor.SendParams{PromptParams: editor.PromptParams{Path: path}}, &res)
		time.Sleep(time.Second)
		t.Logf("%+v %v\n%s", res, err, s.Text())
	})
	t.Run("gemini", func(t *testing.T) {
		w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) })
		path := w.file("a.txt", "alpha\nbeta\ngamma\n")
		e := w.edit(nil)
		bin := installed(t, "gemini-"+current, "node_modules", ".bin", "gemini")
		s := w.screen(append(e.env(), "REMOTE_CONTAINERS=1"), filepath.Clean(bin))
		s.see(ready)
		waitFor(t, "the agent", func() bool { return len(e.agents(t)) == 1 })
		t.Logf("%+v pane %d", e.agents(t), s.PID)
		var res editor.SendResult
		for _, p := range []editor.SendParams{
			{PromptParams: editor.PromptParams{Path: path, Line: 2, EndLine: 3}},
			{PromptParams: editor.PromptParams{Path: path, Line: 2, Question: "and why?"}},
		} {
			err := e.Call(t.Context(), editor.MethodSend, p, &res)
			time.Sleep(2 * time.Second)
			t.Logf("%+v %v\n%s", res, err, s.Text())
			s.press("C-u")
			time.Sleep(time.Second)
		}
	})
}
