package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/adapter"
)

const tooEarly = "This change has just appeared. Look at it, then decide."

// The second click of a double click on Accept accepted the next file, which
// nobody had seen.
func TestPageDoubleClick(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#path", "b.txt"))
	s.press("#accept", 2)
	s.page(shows("#hint", tooEarly))
	// Nor does a slow one, after the change has settled.
	s.settle()
	s.press("#accept", 2)
	s.page(shows("#hint", tooEarly))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#none", "Nothing waits"))
	s.wantSaid("accept a", "accept b")
}

// Ctrl+Enter twice, or held until the keyboard repeats it, accepted the next
// file too.
func TestPageKeyTwiceOrHeld(t *testing.T) {
	s := newStage(t, change("a"), change("b"), change("c"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.ctrlEnterDown(false)
	s.page(shows("#path", "b.txt"))
	for range 20 {
		s.pass(30)
		s.ctrlEnterDown(true)
	}
	s.settle() // a keyboard with a long delay begins to repeat only now
	s.ctrlEnterDown(true)
	s.page(shows("#path", "b.txt"))
	s.settle()
	s.ctrlEnter()
	s.page(shows("#path", "c.txt"))
	s.ctrlEnter()
	s.page(shows("#hint", tooEarly))
	s.settle()
	s.page(chromedp.KeyEvent(kb.Backspace, chromedp.KeyModifiers(kb.ModifierCtrl, kb.ModifierShift)), shows("#none", "Nothing waits"))
	s.wantSaid("accept a", "accept b", "reject c")
}

// A change took the place of the one in view, and the key or click that was
// meant for the old one decided on the new.
func TestPageAnotherTookThePlace(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	// Superseded, while the mouse button is down.
	s.mouse("#accept", 1, chromedp.MousePressed)
	c := change("c")
	c.Path = "/project/a.txt"
	s.tell(adapter.MethodDiffClose, adapter.DiffClose{ID: "b", Reason: adapter.ReasonClosed})
	s.tell(adapter.MethodDiffClose, adapter.DiffClose{ID: "a", Reason: adapter.ReasonSuperseded})
	s.tell(adapter.MethodDiffOpen, c)
	s.page(shows(".cm-merge-b", "c"))
	s.pass(10_000)
	s.mouse("#accept", 1, chromedp.MouseReleased)
	s.page(shows("#hint", tooEarly))

	// Answered in the terminal, and the next one is shown.
	s.tell(adapter.MethodDiffOpen, change("d"))
	s.settle()
	s.tell(adapter.MethodDiffClose, adapter.DiffClose{ID: "c", Reason: adapter.ReasonClosed})
	s.page(shows("#path", "d.txt"))
	s.ctrlEnter()
	s.page(shows("#hint", tooEarly))

	// The half second starts again with each attempt, and with any other key.
	for _, attempt := range []func(){
		s.ctrlEnter, func() { s.press("#reject", 1) }, func() { s.page(chromedp.KeyEvent(kb.ArrowDown)) }, s.ctrlEnter,
	} {
		s.pass(499)
		attempt()
	}
	// Another client has replaced the text.
	text := "another text\n"
	s.pass(500)
	s.tell(adapter.MethodDiffChanged, adapter.DiffChange{ID: "d", Content: &text})
	s.page(shows(".cm-merge-b", "another text"))
	s.ctrlEnter()
	// The tab was hidden.
	s.settle()
	s.page(chromedp.Evaluate[chromedp.Void]("hide(true); pass(10000); hide(false)"))
	s.ctrlEnter()
	// Once settled it stays so, whatever is typed.
	s.pass(500)
	s.page(chromedp.Focus(chromedp.CSS(".cm-merge-b .cm-content")), chromedp.KeyEvent("mine "))
	s.ctrlEnter()
	s.page(shows("#none", "Nothing waits"))
	s.wantSaid("accept d")
	if got := s.texts["d"]; got != "mine "+text && got != "another text\nmine " {
		t.Errorf("accepted %q", got)
	}
}

// Saving and discarding what a CLI left follow the same rule. The buttons show
// it and keep the focus.
func TestPageOrphanJustAppeared(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.page(chromedp.Focus(chromedp.CSS("#reject")))
	s.tell(adapter.MethodDiffChanged, adapter.DiffChange{ID: "a", State: adapter.StateOrphaned})
	s.page(shows("#reject", "Discard"), chromedp.Poll[chromedp.Void](`document.activeElement.id === "reject" && document.activeElement.ariaDisabled === "true"`))
	s.page(chromedp.KeyEvent(kb.Enter), shows("#hint", tooEarly))
	s.ctrlEnter()
	s.settle()
	s.ctrlEnter()
	s.page(shows("#none", "Nothing waits"))
	s.wantSaid("save a")
}

// "Accept again to overwrite it" did nothing on the page, and a double click
// must not overwrite.
func TestPageConflict(t *testing.T) {
	s := newStage(t, change("a"))
	s.answer = func(method, id string) any {
		return adapter.DiffAcceptResult{Status: adapter.StatusConflict, Message: "a.txt has changed. Accept again to overwrite it.", Disk: "on disk\n", Version: "v2"}
	}
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#conflict-text", "a.txt has changed on disk"), shows("#overwrite", "Overwrite the file"))
	s.press("#accept", 2)
	s.press("#overwrite", 1)
	s.page(shows("#hint", tooEarly))
	shown, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`document.querySelector("#conflict-text").innerText`))
	if err != nil || shown != "a.txt has changed on disk since the change was proposed, so it was not written. Compare the change with the file as it is now, or overwrite the file." {
		t.Errorf("the page says %q, %v", shown, err)
	}
	s.page(chromedp.Click(chromedp.CSS("#compare")), shows(".cm-merge-a", "on disk"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#conflict-text", "a.txt has changed on disk"))
	s.answer = nil
	s.settle()
	s.press("#overwrite", 1)
	s.page(shows("#none", "Nothing waits"))
	s.wantSaid("accept a", "accept a", "accept a v2")
}
