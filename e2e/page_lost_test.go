package e2e

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
)

// One request of a reconnect failed while the event stream was open. The page
// said "reconnecting" until it was reloaded, and an edit was never sent.
func TestPageConnectsAgain(t *testing.T) {
	t.Parallel()
	for _, method := range []string{editor.MethodInitialize, editor.MethodDiffEdit, editor.MethodDiffList} {
		t.Run(method, func(t *testing.T) {
			s := newStage(t, change("a"))
			s.page(shows("#path", "a.txt"), shows("#status", "1 connected"))
			s.cut()
			s.page(shows("#status", "reconnecting"), typed("mine "))
			var failed atomic.Bool
			s.guard(func(w http.ResponseWriter, r *http.Request) bool {
				s.mu.Lock()
				down := s.down
				s.mu.Unlock()
				if down || !posts(r, method) || failed.Swap(true) {
					return false
				}
				http.Error(w, "too many open files", http.StatusServiceUnavailable)
				return true
			})
			s.up(change("a"))
			s.page(shows("#status", "1 connected"))
			s.settle()
			for s.text("a") == "" {
				next(t, "edit of the page", s.asked)
			}
			if got := s.text("a"); got != "one\nmine a\n" {
				t.Errorf("the page sent %q", got)
			}
			if !failed.Load() {
				t.Error("no request has failed")
			}
		})
	}
}

// typed types at the start of the first change. With the focus, the browser first moves the caret
// to the start of the text, and CodeMirror moves it back.
func typed(text string) chromedp.Action[chromedp.Void] {
	const line = `(node => node?.closest ? node : node?.parentElement)(getSelection().anchorNode)`
	return chromedp.Steps(chromedp.Focus(chromedp.CSS(".cm-merge-b .cm-content")),
		isTrue(`!!`+line+`?.closest(".cm-merge-b .cm-changedLine")`), chromedp.KeyEvent(text))
}

// lateText waits for a text that the page offers to copy.
func lateText(text string) chromedp.Action[chromedp.Void] {
	return isTrue(`[...document.querySelectorAll(".message textarea")].some(e => e.value.includes(` + strconv.Quote(text) + `))`)
}

// Text typed after Accept was shown as accepted, and was lost.
func TestPageTypedAfterAccept(t *testing.T) {
	orphan := change("c")
	orphan.State = editor.StateOrphaned
	s := newStage(t, change("a"), change("b"), orphan)
	s.script(func(_, _ string) any { return nil })
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.ctrlEnter()
	s.wantSaid("accept a")
	s.page(typed("late "), shows(".cm-merge-b", "late a"))
	s.tell(editor.MethodDiffChanged, editor.DiffChange{ID: "a", State: editor.StateAccepted})
	s.page(shows("#accepted", "Accepted. Waiting for the agent to write a.txt."), lateText("one\nlate a\n"), shows(".message.warning", "a.txt"))
	s.page(isTrue(`!document.querySelector(".cm-merge-b").innerText.includes("late")`))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonAccepted})

	// Text typed before Accept is part of the accepted text.
	s.page(shows("#path", "b.txt"))
	s.settle()
	s.page(typed("mine "))
	s.ctrlEnter()
	s.wantSaid("accept a", "accept b")
	s.tell(editor.MethodDiffChanged, editor.DiffChange{ID: "b", State: editor.StateAccepted})
	s.page(shows("#accepted", "b.txt"), shows(".cm-merge-b", "mine b"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "b", Reason: editor.ReasonAccepted})
	s.page(shows(".message.info", "b.txt was written with the accepted text."))

	// The same applies to saving a text that a CLI left.
	s.page(shows("#path", "c.txt"))
	s.settle()
	s.ctrlEnter()
	s.wantSaid("accept a", "accept b", "save c")
	s.page(typed("later "), shows(".cm-merge-b", "later c"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "c", Reason: editor.ReasonSaved})
	s.page(lateText("one\nlater c\n"))
	s.page(warnings(2)) // of a.txt and c.txt
}

// Text typed while Pollux decides is a normal edit if the change stays open.
func TestPageTypedBeforeConflict(t *testing.T) {
	s := newStage(t, change("a"))
	var held atomic.Bool
	answer := make(chan struct{})
	s.guard(func(_ http.ResponseWriter, r *http.Request) bool {
		if posts(r, editor.MethodDiffAccept) && !held.Swap(true) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		return false
	})
	s.script(func(_, _ string) any {
		return editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "a.txt has changed on disk since the change was proposed.", Disk: "on disk\n", Version: "v2"}
	})
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.ctrlEnter()
	s.page(typed("late "), shows(".cm-merge-b", "late a"))
	close(answer)
	s.page(shows("#conflict-text", "a.txt has changed on disk"))
	for s.text("a") != "one\nlate a\n" {
		next(t, "edit of the page", s.asked)
	}
	s.script(nil)
	s.settle()
	s.press("#overwrite", 1)
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept a", "accept a v2")
	if got := s.text("a"); got != "one\nlate a\n" {
		t.Errorf("accepted %q", got)
	}
}

// A companion exited and the next one used its port. The old tab received a new
// link; then the refusal of the old secret deleted the new one.
func TestPageNewLinkInOldTab(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"), shows("#status", "1 connected"))
	arrived, refuse := make(chan struct{}, 100), make(chan struct{})
	var held atomic.Bool
	s.guard(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/review/events" && !held.Swap(true) {
			arrived <- struct{}{}
			<-refuse
		}
		return false
	})
	link := s.restart()
	s.cut()
	s.up(change("b"))
	next(t, "connection of the page", arrived)
	s.page(chromedp.Evaluate[chromedp.Void](`window.before = sessionStorage["pollux-secret"]; location = `+quote(link)),
		isTrue(`sessionStorage["pollux-secret"] !== before`))
	close(refuse)
	s.page(shows("#path", "b.txt"), shows("#status", "1 connected"), chromedp.Reload(), shows("#path", "b.txt"))
}

// Over ssh, a forwarded port may open later than the page, which lost its link.
func TestPageKeepsItsLink(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	var away atomic.Bool
	away.Store(true)
	s.guard(func(_ http.ResponseWriter, r *http.Request) bool {
		if away.Load() && r.URL.Path == "/review/login" {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	second := newTab(t, s.ctx)
	onPage(t, second, chromedp.Navigate(s.pages.Link()), shows("#none", "Pollux cannot be reached"), shows("#none", "pollux status"))
	away.Store(false)
	onPage(t, second, shows("#path", "a.txt"), shows("#status", "1 connected"))
}

// Pollux had stopped, or the connection was dead: the buttons stayed disabled
// until the page was reloaded.
func TestPageNoAnswer(t *testing.T) {
	s := newStage(t, change("a"))
	noAnswer := shows(".message.error", "Pollux did not answer within 15 seconds.")
	s.script(func(_, _ string) any { return nil })
	s.page(shows("#path", "a.txt"))
	s.settle()
	s.ctrlEnter()
	s.wantSaid("accept a")
	s.page(chromedp.Evaluate[chromedp.Void]("expire()"), noAnswer, shows(".message.error", "look at the file"),
		chromedp.Click(chromedp.CSS(".message.error button")), shows("#status", "1 connected"))

	// The request does not arrive, and must not arrive later, after the user
	// has read that it failed.
	arrived := make(chan struct{}, 100)
	s.guard(func(_ http.ResponseWriter, r *http.Request) bool {
		if !posts(r, editor.MethodDiffEdit) {
			return false
		}
		arrived <- struct{}{}
		<-r.Context().Done()
		return true
	})
	s.settle()
	s.page(typed("mine "))
	next(t, "edit of the page", arrived)
	s.ctrlEnter()
	s.guard(nil)
	s.page(chromedp.Evaluate[chromedp.Void]("expire()"), noAnswer, shows("#status", "1 connected"))
	s.wantSaid("accept a")

	s.script(nil)
	s.settle()
	s.ctrlEnter()
	s.page(shows("#none", "No pending changes"))
	s.wantSaid("accept a", "accept a")
	if got := s.text("a"); got != "one\nmine a\n" {
		t.Errorf("accepted %q", got)
	}
}

// A text that one tab had kept over a reload overwrote later edits from
// elsewhere.
func TestPageOlderText(t *testing.T) {
	s := newStage(t, change("a"), change("b"))
	s.page(shows("#path", "a.txt"), shows("#status", "1 connected"))
	s.cut()
	s.page(shows("#status", "reconnecting"), typed("mine "), shows(".cm-merge-b", "mine a"))
	s.page(chromedp.Click(`//button[contains(., "b.txt")]`), shows("#path", "b.txt"), typed("my "), shows(".cm-merge-b", "my b"))
	s.page(chromedp.Reload(), shows("#status", "reconnecting"))
	a, newer := change("a"), "one\nnewer\n"
	a.Content = &newer
	s.up(a, change("b"))
	older := lateText("one\nmine a\n")
	s.page(shows("#path", "a.txt"), shows("#status", "1 connected"), shows(".cm-merge-b", "newer"), older,
		shows(".message.warning", "a.txt was edited elsewhere after your last edits here."))
	// b was not edited.
	s.page(chromedp.Click(`//button[contains(., "b.txt")]`), shows(".cm-merge-b", "my b"))
	for s.text("b") != "one\nmy b\n" {
		next(t, "edit of the page", s.asked)
	}
	// The older text stays until the user dismisses it.
	s.page(chromedp.Reload(), shows("#status", "1 connected"), shows(".cm-merge-b", "newer"), older)
	s.page(chromedp.Click(chromedp.CSS(".message.warning button")), chromedp.Reload(), shows("#status", "1 connected"), shows(".cm-merge-b", "newer"))
	s.page(warnings(0)) // the user has dismissed the only one
	s.settle()
	s.ctrlEnter()
	s.page(shows("#path", "b.txt"))
	s.wantSaid("accept a")
	if got := s.text("a"); got != newer {
		t.Errorf("accepted %q", got)
	}
}
