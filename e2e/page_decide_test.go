package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/editor"
)

const tooEarly = "This change has just appeared. Look at it, then decide."

// The list and the header name the agent that proposed a change. An older companion
// sends only the client's name and version.
func TestPageNamesTheAgent(t *testing.T) {
	named, older := change("a"), change("b")
	named.Agent = "Some Agent"
	s := newStage(t, named, older)
	s.page(shows("#path", "a.txt"), shows("#from", "from Some Agent"), shows(`[data-id="a"] .agent`, "Some Agent"))
	s.page(shows(`[data-id="b"] .agent`, "CLI 1"), chromedp.Click(`//button[contains(., "b.txt")]`), shows("#from", "from CLI 1"))
}

// The second click of a double click on Accept accepted the next file, which
// the user had not seen.
func TestPageDoubleClick(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#path", "b.txt"))
	s.press("#accept", 2)
	s.page(shows("#hint", tooEarly))
	// A slow second click, after the change has settled, does not decide
	// either.
	s.settle()
	s.press("#accept", 2)
	s.page(shows("#hint", tooEarly))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept a", "accept b")
}

// After a decision the page was empty; now it says what became of the last changes. Reset looked
// as if it had something to do without an edit, and a bare arrow undid a hunk.
func TestPageSaysWhatBecameOfChanges(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	reset := func(disabled string) chromedp.Action[chromedp.Void] {
		return isTrue(`document.querySelector("#reset").getAttribute("aria-disabled") === ` + quote(disabled))
	}
	s.page(shows("#path", "a.txt"), shows(".revert", "Undo"), reset("true"))
	s.settle() // an earlier key does nothing
	s.page(edit, chromedp.KeyEvent("mine"), shows(".tags", "edited"), reset("false"))
	s.page(chromedp.Click(chromedp.CSS("#reset")), reset("true"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonAccepted})
	s.page(shows("#path", "b.txt"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "b", Reason: editor.ReasonRejected})
	s.page(shows("#none", "The change to b.txt was rejected."), shows("#none", "a.txt was written with the accepted text."),
		shows("#none", "To see or restore a change: pollux journal"))
}

// The end of an agent was said twice, and its discarded text was called rejected.
func TestPageSaysDisconnectedOnce(t *testing.T) {
	ended := change("b")
	ended.State = editor.StateOrphaned
	s := newStage(t, change("a"), ended)
	s.page(shows("#path", "a.txt"), shows(".tags", "disconnected"))
	s.tell(editor.MethodMessage, editor.Message{Level: "warning", Diff: "b", Text: "CLI 1, which proposed the change to b.txt, is disconnected."})
	s.page(warnings(1), chromedp.Click(`//button[contains(., "b.txt")]`), shows("#orphaned", "is disconnected"), warnings(0))
	s.settle()
	s.page(chromedp.KeyEvent("r"), shows(".message.info", "The text for b.txt was discarded."))
}

// Side by side, Undo looked like a word between the texts, a little above its hunk.
func TestPageUndoIsAButton(t *testing.T) {
	s := newStage(t, threeHunks("a"))
	s.page(shows(".revert", "Undo"), isTrue(`(() => {
		const lines = document.querySelectorAll(".cm-merge-b .cm-changedLine"), buttons = document.querySelectorAll(".revert")
		const middle = (e) => (r => r.top + r.height / 2)(e.getBoundingClientRect())
		return buttons.length === 3 && [...buttons].every((b, i) => Math.abs(middle(b) - middle(lines[i])) < 2 && getComputedStyle(b).borderStyle === "solid")
	})()`))
}

// Ctrl+Enter pressed twice, or held until the keyboard repeats it, accepted the
// next file too.
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
	s.settle() // a keyboard with a long delay starts to repeat only now
	s.ctrlEnterDown(true)
	s.page(shows("#path", "b.txt"))
	s.settle()
	s.ctrlEnter()
	s.page(shows("#path", "c.txt"))
	s.ctrlEnter()
	s.page(shows("#hint", tooEarly))
	s.settle()
	s.page(chromedp.KeyEvent(kb.Backspace, chromedp.KeyModifiers(kb.ModifierCtrl, kb.ModifierShift)), shows("#none", "No pending changes"))
	s.wantSaid("accept a", "accept b", "reject c")
}

// A change replaced the one in view, and the key or click meant for the old one
// decided on the new one.
func TestPageAnotherTookThePlace(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	// The change is superseded while the mouse button is down.
	s.mouse("#accept", 1, chromedp.MousePressed)
	c := change("c")
	c.Path = "/project/a.txt"
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "b", Reason: editor.ReasonClosed})
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonSuperseded})
	s.tell(editor.MethodDiffOpen, c)
	s.page(shows(".cm-merge-b", "c"))
	s.pass(10_000)
	s.mouse("#accept", 1, chromedp.MouseReleased)
	s.page(shows("#hint", tooEarly))

	// The change is answered in the terminal, and the next one is shown.
	s.tell(editor.MethodDiffOpen, change("d"))
	s.settle()
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "c", Reason: editor.ReasonClosed})
	s.page(shows("#path", "d.txt"))
	s.ctrlEnter()
	s.page(shows("#hint", tooEarly))

	// The half second starts again with each attempt and with any other key.
	for _, attempt := range []func(){
		s.ctrlEnter, func() { s.press("#reject", 1) }, func() { s.page(chromedp.KeyEvent(kb.ArrowDown)) }, s.ctrlEnter,
	} {
		s.pass(499)
		attempt()
	}
	// Another client has replaced the text.
	text := "another text\n"
	s.pass(500)
	s.tell(editor.MethodDiffChanged, editor.DiffChange{ID: "d", Content: &text})
	s.page(shows(".cm-merge-b", "another text"))
	s.ctrlEnter()
	// The tab was hidden.
	s.settle()
	s.page(chromedp.Evaluate[chromedp.Void]("hide(true); pass(10000); hide(false)"))
	s.ctrlEnter()
	// Once settled it stays settled, whatever the user types.
	s.pass(500)
	s.page(typed("mine "))
	s.ctrlEnter()
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept d")
	if got := s.text("d"); got != "mine "+text && got != "another text\nmine " {
		t.Errorf("accepted %q", got)
	}
}

// The half second ended while the page was drawing, and Accept and Reject stayed grey.
func TestPageSettlesWhileItDraws(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	s.pass(499)
	s.page(chromedp.Evaluate[chromedp.Void]("run(1)"), settled)
}

// A change that replaced another one behind the Keys dialog was never seen.
func TestPageBehindTheKeys(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.page(chromedp.KeyEvent(kb.F1), shows("#keys", "Keys"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonClosed})
	s.page(shows("#path", "b.txt"))
	s.settle()
	s.page(chromedp.KeyEvent(kb.Escape),
		isTrue(`!document.querySelector("#keys").open && document.querySelector("#accept").ariaDisabled === "true"`))
	s.ctrlEnter()
	s.page(shows("#hint", tooEarly))
	s.settle()
	s.ctrlEnter()
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept b")
}

// Saving and discarding the text that a CLI left follow the same rule. The
// buttons show it and keep the focus.
func TestPageOrphanJustAppeared(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.page(chromedp.Focus(chromedp.CSS("#reject")))
	s.tell(editor.MethodDiffChanged, editor.DiffChange{ID: "a", State: editor.StateOrphaned})
	s.page(shows("#reject", "Discard"), isTrue(`document.activeElement.id === "reject" && document.activeElement.ariaDisabled === "true"`))
	s.page(chromedp.KeyEvent(kb.Enter), shows("#hint", tooEarly))
	s.ctrlEnter()
	s.settle()
	s.ctrlEnter()
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("save a")
}

// The tag of a deleted file was "changed on disk".
func TestPageConflictWithADeletedFile(t *testing.T) {
	s := newStage(t, change("a"))
	s.script(func(_, _ string) any {
		return editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "a.txt was deleted since the change was proposed.", Deleted: true, Version: "v2"}
	})
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#conflict-text", "a.txt was deleted"), shows(".item .tags", "deleted"))
	s.page(chromedp.Click(chromedp.CSS("#compare")), shows(".item .tags", "new file"))
}

// "Accept again to overwrite it" did nothing on the page. A double click must
// not overwrite.
func TestPageConflict(t *testing.T) {
	s := newStage(t, change("a"))
	s.script(func(_, _ string) any {
		return editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "a.txt has changed on disk since the change was proposed.", Disk: "on disk\n", Version: "v2"}
	})
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#conflict-text", "a.txt has changed on disk"), shows("#overwrite", "Overwrite the file"))
	s.press("#accept", 2)
	s.press("#overwrite", 1)
	s.page(shows("#hint", tooEarly))
	shown, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](`document.querySelector("#conflict-text").innerText`))
	if err != nil || shown != "a.txt has changed on disk since the change was proposed. It was not written. Compare the change with the file as it is now, or overwrite the file." {
		t.Errorf("the page says %q, %v", shown, err)
	}
	s.page(chromedp.Click(chromedp.CSS("#compare")), shows(".cm-merge-a", "on disk"))
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#conflict-text", "a.txt has changed on disk"))
	s.script(nil)
	s.settle()
	s.press("#overwrite", 1)
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept a", "accept a", "accept a v2")
}

// After a lost connection, changes answered in the meantime stayed in the list,
// with buttons that did nothing.
func TestPageReconnects(t *testing.T) {
	s := newStage(t, change("a"), change("b"), change("c"))
	s.page(shows("#path", "a.txt"), chromedp.Click(`//button[contains(., "b.txt")]`), shows("#path", "b.txt"))
	s.cut()
	s.page(shows("#status", "reconnecting"))
	s.page(typed("unsent "), shows(".tags", "edited"))
	s.page(chromedp.Click(`//button[contains(., "c.txt")]`), shows("#path", "c.txt"))
	s.page(typed("sent later "))
	// Another client decides on a and b.
	s.up(change("c"), change("d"))
	s.page(shows("#status", "1 connected"), shows(".name", "d.txt"), shows("#path", "c.txt"), shows(".cm-merge-b", "sent later"))
	s.page(isTrue(`[...document.querySelectorAll("#list .name")].map(e => e.innerText).join() === "c.txt,d.txt"`))
	s.page(shows(".message", "The change to a.txt was answered while this page was not connected."))
	// The text of b is not lost: it stays, even after a reload, until the user
	// has seen it.
	lost := isTrue(`[...document.querySelectorAll(".message textarea")].map(e => e.value).join().includes("unsent ")`)
	s.page(lost, shows(".message", "The change to b.txt was answered before your last edits reached Pollux."))
	s.page(chromedp.Reload(), shows("#path", "c.txt"), shows(".cm-merge-b", "sent later"), lost)
	s.page(chromedp.Click(chromedp.CSS(".message.warning button")), chromedp.Reload(), shows("#path", "c.txt"))
	s.page(warnings(0)) // the user has dismissed the only one
	s.settle()
	s.ctrlEnter()
	s.page(shows("#path", "d.txt"))
	s.wantSaid("accept c")
	if got := s.text("c"); !strings.Contains(got, "sent later ") {
		t.Errorf("accepted %q", got)
	}
}

// "Keep" looked like a decision: the page did not say that Accept is still
// needed, and the other view still had all changes.
func TestPageKeepIsNoDecision(t *testing.T) {
	d := change("a")
	d.Original, d.Proposed = "one\n\n\ntwo\n", "ONE\n\n\nTWO\n"
	s := newStage(t, d)
	s.page(shows("#path", "a.txt"), chromedp.Click(chromedp.CSS("#mode")), shows(".cm-deletedChunk", "one"))
	s.page(chromedp.Click(chromedp.CSS(".cm-chunkButtons button")), shows("#kept", "Not decided yet: press Accept."))
	chunks := func(want int) {
		t.Helper()
		s.page(isTrue(fmt.Sprintf(`document.querySelectorAll(".cm-deletedChunk, .cm-merge-a .cm-changedLine").length === %d`, want)))
	}
	chunks(1)
	// In the light theme the buttons were white on white.
	colours, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]string](`(c => [c.color, c.backgroundColor])(getComputedStyle(document.querySelector(".cm-chunkButtons button")))`))
	if err != nil || colours[0] == colours[1] {
		t.Errorf("the buttons have %v, %v", colours, err)
	}
	s.page(chromedp.Click(chromedp.CSS("#mode")), shows(".cm-merge-a", "two"), shows("#kept", "Not decided yet"))
	chunks(1)
	s.page(chromedp.Click(chromedp.CSS("#mode")), shows(".cm-deletedChunk", "two"))
	s.page(chromedp.Click(chromedp.CSS(".cm-chunkButtons button")))
	chunks(0)
	s.page(shows("#kept", "Not decided yet: press Accept."))
	s.page(chromedp.Click(chromedp.CSS("#unkeep")), isTrue(`document.querySelector("#kept").hidden`))
	chunks(2)
	s.settle()
	s.press("#accept", 1)
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept a")
}

// The agent writes an accepted change. Until it has done so, the page waits and
// allows no further decision; then it reports the result.
func TestPageAcceptedIsNotWritten(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.script(func(_, _ string) any { return editor.DiffAcceptResult{Status: editor.StatusAccepted} })
	s.page(shows("#path", "a.txt"))
	for _, c := range []struct{ id, reason, message, class string }{
		{"a", "unwritten", "a.txt was accepted, but CLI did not write it.", "#messages .warning"},
		{"b", "accepted", "b.txt was written with the accepted text.", ".message.info"},
	} {
		s.page(shows("#path", c.id+".txt"))
		s.settle()
		s.press("#accept", 1)
		s.tell(editor.MethodDiffChanged, editor.DiffChange{ID: c.id, State: "accepted"})
		s.page(shows("#accepted", "Accepted. Waiting for the agent to write "+c.id+".txt."), shows(`[aria-current=true] .tags`, "accepted"))
		s.pass(10_000)
		s.ctrlEnter()
		s.press("#reject", 1)
		s.page(typed("late "))
		if c.reason == "unwritten" {
			s.unwritten(c.id)
		} else {
			s.tell(editor.MethodDiffClose, editor.DiffClose{ID: c.id, Reason: c.reason})
		}
		s.page(shows(c.class, c.message))
	}
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept a", "accept b")
	for _, id := range []string{"a", "b"} {
		if text := s.text(id); text != change(id).Proposed {
			t.Errorf("%s: the page sent %q", id, text)
		}
	}
	// A page that connects in the meantime shows the same.
	c := change("c")
	c.State = "accepted"
	s.tell(editor.MethodDiffOpen, c)
	s.page(shows("#accepted", "Accepted. Waiting for the agent to write c.txt."), shows(".message.warning", "a.txt was accepted, but CLI did not write it."))
}
