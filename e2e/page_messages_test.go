package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
)

// unwritten tells the page that the agent did not write an accepted change.
func (s *stage) unwritten(id string) {
	s.t.Helper()
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: id, Reason: editor.ReasonUnwritten})
	s.tell(editor.MethodMessage, editor.Message{
		Level: "warning", Diff: id, Unwritten: true,
		Text: id + ".txt was accepted, but CLI did not write it. To write it: pollux journal restore " + id,
	})
}

// warnings waits until the page shows that many warnings.
func warnings(n int) chromedp.Action[chromedp.Void] {
	return isTrue(fmt.Sprintf(`document.querySelectorAll(".message.warning").length === %d`, n))
}

// manyHunks is a change with n hunks, 20 lines from each other.
func manyHunks(name string, n int) editor.Diff {
	d := change(name)
	var before, after strings.Builder
	for i := range 20 * n {
		line := fmt.Sprintf("line %d of the file, with some words in it\n", i)
		before.WriteString(line)
		if i%20 == 7 {
			line = strings.ReplaceAll(line, "some", "other")
		}
		after.WriteString(line)
	}
	d.Original, d.Proposed = before.String(), after.String()
	return d
}

// Warnings covered the proposed text for five minutes, and stayed when they were settled.
func TestPageWarnings(t *testing.T) {
	s := newStage(t, manyHunks("a", 40), change("b"))
	s.page(shows("#path", "a.txt"), shows(".name", "b.txt"))
	s.unwritten("b")
	s.page(shows(".message.warning", "b.txt was accepted, but CLI did not write it."), warnings(1))
	s.tell(editor.MethodMessage, editor.Message{Level: "warning", Diff: "latin", Text: "latin.txt cannot be displayed"})
	s.page(warnings(2))
	for _, width := range []int64{1280, 700} {
		s.page(chromedp.EmulateViewport(width, 720), isTrue(fmt.Sprintf("innerWidth === %d", width)))
		covered, err := chromedp.Run(s.ctx, chromedp.Evaluate[bool](`(() => {
			const view = document.querySelector("#view").getBoundingClientRect()
			return view.height < 300 || [...document.querySelectorAll(".message")].some(e => e.getBoundingClientRect().bottom > view.top)
		})()`))
		if err != nil || covered {
			t.Errorf("%d pixels wide: a warning covers the text: %v, %v", width, covered, err)
		}
	}
	// A newer message about the same diff replaces one; its end withdraws it.
	s.tell(editor.MethodMessage, editor.Message{Level: "warning", Diff: "latin", Text: "another text"})
	s.page(shows(".message.warning", "another text"), warnings(2))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "latin", Reason: editor.ReasonClosed})
	s.page(warnings(1))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "b", Reason: editor.ReasonAccepted})
	s.page(warnings(0))
	// Pollux repeats what still counts to a page that connects again.
	s.unwritten("b")
	s.page(warnings(1))
	s.cut()
	s.up(manyHunks("a", 40))
	s.page(shows("#status", "1 connected"), warnings(0))
}

// The warning offered a shell command only.
func TestPageWritesTheFile(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	s.unwritten("a")
	button := ".message.warning button"
	s.page(shows(button, "Write the file"))
	s.press(button, 1) // too early: it may have been meant for something else
	s.pass(1000)
	answers := []any{
		editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "a.txt has changed on disk.", Version: "v2"},
		editor.DiffAcceptResult{Status: editor.StatusAccepted},
	}
	s.script(func(string, string) (answer any) {
		answer, answers = answers[0], answers[1:]
		return answer
	})
	s.press(button, 1)
	s.page(shows(".message.warning", "a.txt has changed on disk."), shows(button, "Overwrite the file"), warnings(1))
	s.press(button, 1)
	s.pass(1000)
	s.press(button, 1)
	s.wantSaid("save a", "save a v2")
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonAccepted})
	s.page(warnings(0))
}

// The next hunk was at the bottom edge. After `u`, the cursor was in no hunk.
func TestPageShowsTheNextHunk(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"side by side", "unified"} {
		t.Run(mode, func(t *testing.T) {
			s := newStage(t, manyHunks("a", 40))
			s.page(shows("#position", "hunk 1 of 40"))
			if mode == "unified" {
				s.page(chromedp.KeyEvent("v"), shows(".cm-deletedChunk", "line 7 "))
			}
			s.settle()
			centred := func(position, line string) {
				t.Helper()
				s.page(shows("#position", position), shows(".current-hunk", line), isTrue(`(() => {
					const view = document.querySelector("#view").getBoundingClientRect()
					const at = document.querySelector(".current-hunk").getBoundingClientRect()
					return Math.abs((at.top + at.bottom) / 2 - (view.top + view.bottom) / 2) < view.height / 5
				})()`))
			}
			for range 4 {
				s.page(chromedp.KeyEvent("n"))
			}
			centred("hunk 5 of 40", "line 87 ")
			s.page(chromedp.KeyEvent("p"))
			centred("hunk 4 of 40", "line 67 ")
			s.page(chromedp.KeyEvent("u"))
			centred("hunk 4 of 39", "line 87 ")
			s.page(chromedp.KeyEvent("u"))
			centred("hunk 4 of 38", "line 107 ")
			s.page(chromedp.KeyEvent("a")) // the hunk that was undone last
			centred("hunk 4 of 39", "line 87 ")
			for range 4 {
				s.page(chromedp.KeyEvent("p"))
			}
			s.page(shows("#position", "hunk 39 of 39"), chromedp.KeyEvent("u"), shows("#position", "hunk 38 of 38"))
		})
	}
}
