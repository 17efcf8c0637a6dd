package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/editor"
)

// threeHunks is a change with three hunks.
func threeHunks(name string) editor.Diff {
	d := change(name)
	d.Original, d.Proposed = "one\n\ntwo\n\nthree\n", "ONE\n\nTWO\n\nTHREE\n"
	return d
}

// The focus was in the text, so that a stray key was written into the file: `?`, for
// example, which shows the keys in other programs.
func TestPageStrayKeys(t *testing.T) {
	s := newStage(t, threeHunks("a"))
	s.page(shows("#position", "hunk 1 of 3"), shows("#caption-new", "Proposed text: click it, or press e, to edit"))
	s.settle()
	s.page(chromedp.KeyEvent("?"), shows("#keys[open]", "undo the hunk"), chromedp.KeyEvent("n"), chromedp.KeyEvent("y"),
		chromedp.KeyEvent("?"), gone("#keys[open]"), unsettled, shows("#position", "hunk 1 of 3"))
	s.page(chromedp.KeyEvent("Zq ."), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Delete))
	s.settle()
	s.page(chromedp.KeyEvent("y"), shows("#none", "No pending changes"))
	s.wantSaid("accept a")
	if got, want := s.text("a"), threeHunks("a").Proposed; got != want {
		t.Errorf("accepted %q, want %q", got, want)
	}
}

// The keys of pollux review work on the page too, side by side and unified.
func TestPageSingleKeys(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"side by side", "unified"} {
		t.Run(mode, func(t *testing.T) {
			s := newStage(t, threeHunks("a"), threeHunks("b"))
			s.page(shows("#position", "hunk 1 of 3"))
			if mode == "unified" {
				s.page(chromedp.KeyEvent("v"), shows(".cm-deletedChunk", "one"))
			}
			s.settle()
			s.page(chromedp.KeyEvent("n"), shows("#position", "hunk 2 of 3"), shows(".current-hunk", "TWO"),
				chromedp.KeyEvent("p"), shows("#position", "hunk 1 of 3"))
			s.page(chromedp.KeyEvent("u"), shows(".cm-line", "one"), shows("#position", "hunk 1 of 2"), shows(".current-hunk", "TWO"),
				chromedp.KeyEvent("a"), shows("#position", "hunk 1 of 3"), shows(".current-hunk", "ONE"),
				chromedp.KeyEvent("a"), shows("#hint", "The text here is as proposed."))
			// Keep decides nothing, and goes on. The other view shows the same.
			s.page(chromedp.KeyEvent("n"), chromedp.KeyEvent("s"), shows("#kept", "Not decided yet: press Accept."), shows("#position", "hunk 2 of 2"), shows(".current-hunk", "THREE"),
				chromedp.KeyEvent("v"), shows("#kept", "Not decided yet"), shows("#position", "hunk 2 of 2"))
			// Edit the text, and leave it.
			s.page(chromedp.KeyEvent("p"), shows("#position", "hunk 1 of 2"), edit, chromedp.KeyEvent("mine y"), shows(".tags", "edited"), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("n"))
			s.page(shows("#position", "hunk 2 of 2"), chromedp.KeyEvent("u"), shows("#position", "hunk 1 of 1"))
			s.page(chromedp.KeyEvent("]"), shows("#path", "b.txt"), chromedp.KeyEvent("["), shows("#path", "a.txt"))
			s.page(chromedp.KeyEvent("y"), shows("#hint", tooEarly))
			s.settle()
			s.page(chromedp.KeyEvent("y"), shows("#path", "b.txt"))
			s.settle()
			s.page(chromedp.KeyEvent("r"), shows("#none", "No pending changes"))
			s.wantSaid("accept a", "reject b")
			if got := s.text("a"); got != "mine yONE\n\nTWO\n\nthree\n" {
				t.Errorf("accepted %q", got)
			}
		})
	}
}

// A user who walked through the page with Tab wrote tabs into the file.
func TestPageTabPassesText(t *testing.T) {
	s := newStage(t, change("a"))
	focus := func(selector string) chromedp.Action[chromedp.Void] {
		return isTrue(`document.activeElement.matches(` + quote(selector) + `)`)
	}
	s.page(shows("#path", "a.txt"), focus("#view"))
	for _, next := range []string{".cm-merge-a *", ".revert", ".cm-merge-b *"} {
		s.page(chromedp.KeyEvent(kb.Tab), focus(next))
	}
	s.page(chromedp.KeyEvent(kb.Tab), focus("body"), unseen(".tags .edited"))
	// A text that is edited gets tabs.
	s.settle()
	s.page(chromedp.Evaluate[chromedp.Void](`document.querySelector("#view").focus()`), edit, focus(".cm-merge-b *"), chromedp.KeyEvent(kb.Tab), shows(".tags", "edited"), focus(".cm-merge-b *"))
}

// A key that edits follows the same rule as one that decides.
func TestPageSingleKeysTooEarly(t *testing.T) {
	readOnly := threeHunks("b")
	readOnly.ReadOnly = "The agent writes its own text"
	s := newStage(t, threeHunks("a"), readOnly)
	s.page(shows("#status", "1 connected"), shows("#position", "hunk 1 of 3"))
	for _, key := range []string{"u", "a", "s", "e", "y", "r"} {
		s.page(chromedp.KeyEvent(key), shows("#hint", tooEarly), chromedp.Evaluate[chromedp.Void](`document.querySelector("#hint").textContent = ""`))
	}
	s.page(shows("#position", "hunk 1 of 3"), chromedp.KeyEvent("]"), shows("#path", "b.txt"))
	s.settle()
	for _, key := range []string{"u", "a", "s", "e"} {
		s.page(chromedp.KeyEvent(key), shows("#hint", "This text is read-only."), chromedp.Evaluate[chromedp.Void](`document.querySelector("#hint").textContent = ""`))
	}
	s.page(shows("#position", "hunk 1 of 3"), shows("#caption-new", "Proposed text, read-only"))
	s.page(chromedp.KeyEvent("r"), shows("#path", "a.txt"))
	s.wantSaid("reject b")
}

// gone waits until no element matches.
func gone(selector string) chromedp.Action[chromedp.Void] {
	return isTrue(`!document.querySelector(` + quote(selector) + `)`)
}
