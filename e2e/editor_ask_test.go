package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/editors/editortest"
	"pollux/internal/fakemodel"
)

// A question to another agent from the editor: the answer appears in a buffer, the next
// question continues the conversation, and the selected lines are a part of the question.
func TestEditorQuestion(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, _ hands) {
		w := newFakeWorld(t, func(r fakemodel.Request) fakemodel.Reply {
			if strings.Contains(r.Text, "And why?") {
				return fakemodel.Say("Because of **beta**.")
			}
			return fakemodel.Say("It says café.")
		})
		w.addPath(filepath.Dir(w.fake))
		w.addPath(filepath.Dir(polluxBinary))
		d := w.sit(kind, w.file("a.txt", "one\ntwo\nthree\n"))
		ask := func(agent, question string) {
			if kind.Name == "emacs" {
				d.press("M-<", "C-Space", "C-n", "C-n", "C-u", "M-x", "pollux-ask", "Enter", question, "Enter", agent, "Enter")
			} else {
				d.press(":1,2Pollux ask "+agent+" "+question, "Enter")
			}
		}
		ask("gemini", "What is it?")
		if got := w.wantPrompt("What is it?"); !strings.Contains(got.Text, "a.txt, lines 1 to 2:") || !strings.Contains(got.Text, "one\ntwo") || strings.Contains(got.Text, "three\n```") {
			t.Errorf("the model received %q", got.Text)
		}
		d.see("> What is it?")
		d.see("It says café.")
		d.see("* * *") // the answer is complete
		ask("gemini", "And why?")
		if got := w.wantPrompt("And why?"); !strings.Contains(got.Text, "It says café.") {
			t.Errorf("the model received %q", got.Text)
		}
		d.see("Because of **beta**.")
		if *screenshots != "" && kind.Name == "nvim" {
			w.shoot("nvim-ask.png", d.Coloured())
		}
	})
}
