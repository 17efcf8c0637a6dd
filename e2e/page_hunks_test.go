package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
	"pollux/internal/hunk"
)

// A file of more than 70 kB was one red and green hunk. In pollux review, one with
// more than a hundred changed lines was one too.
func TestPageHunksOfBigFile(t *testing.T) {
	d := manyHunks("big", 500)
	if n := len(hunk.Between(d.Original, d.Proposed)); n != 500 {
		t.Fatalf("%d hunks, want 500", n)
	}
	s := newStage(t, d)
	s.page(shows("#position", "hunk 1 of 500"), shows(".cm-merge-b .cm-changedText", "other"))
	s.page(chromedp.KeyEvent("n"), shows("#position", "hunk 2 of 500"), shows(".cm-merge-b .current-hunk", "line 27 of the file, with other words"))
	s.page(chromedp.KeyEvent("v"), shows("#position", "hunk 2 of 500"), shows(".cm-deletedChunk", "line 27 of the file"))
}

// The page compares texts like everything else: it marks the lines of the same hunks.
func TestPageHunksAreTheSame(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range random.IntN(9) {
			b.WriteString(string("abcd}"[random.IntN(5)]) + "\n")
		}
		if random.IntN(3) == 0 {
			b.WriteString("end")
		}
		return b.String()
	}
	type marks struct{ Old, New []int }
	for range 100 {
		d := change("a")
		d.Original, d.Proposed = text(), text()
		var want marks
		for _, h := range hunk.Between(d.Original, d.Proposed) {
			for i := range h.OldLines {
				want.Old = append(want.Old, h.Old+i)
			}
			for i := range h.NewLines {
				want.New = append(want.New, h.New+i)
			}
		}
		s.tell(editor.MethodDiffOpen, d)
		got, err := chromedp.Run(s.ctx, chromedp.Evaluate[marks](`(() => {
			const lines = (side) => [...document.querySelectorAll(".cm-merge-" + side + " .cm-line")].map((e, i) => e.classList.contains("cm-changedLine") ? i + 1 : 0).filter(Boolean)
			return { Old: lines("a"), New: lines("b") }
		})()`))
		if err != nil {
			t.Fatal(err)
		}
		// The page also marks the empty line that follows the last line feed, if only one
		// of the texts ends with one.
		if strings.HasSuffix(d.Original, "end") != strings.HasSuffix(d.Proposed, "end") {
			trim := func(lines []int, text string) []int {
				last := strings.Count(text, "\n") + 1
				return slices.DeleteFunc(lines, func(l int) bool { return l == last && !strings.HasSuffix(text, "end") })
			}
			got.Old, got.New = trim(got.Old, d.Original), trim(got.New, d.Proposed)
		}
		if !slices.Equal(got.Old, want.Old) || !slices.Equal(got.New, want.New) {
			t.Errorf("%q and %q: the page marks %v, want %v", d.Original, d.Proposed, got, want)
		}
	}
}

// Undoing all hunks gives the original text, whatever its last line ends with.
func TestPageUndoesEachHunk(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonClosed})
	var said []string
	for i, c := range [][2]string{
		{"one\ntwo\n", "ONE\ntwo\nthree\n"},
		{"one\ntwo", "one\nTWO\n"},
		{"one\ntwo\n", "one\nTWO"},
		{"one", ""},
		{"one\n", ""},
		{"", "one"},
		{"one\n", "one\ntwo"},
		{"one\ntwo", "two"},
	} {
		d := change(fmt.Sprint("text-", i))
		d.Original, d.Proposed = c[0], c[1]
		s.tell(editor.MethodDiffOpen, d)
		s.page(shows("#path", d.ID+".txt"))
		for range hunk.Between(c[0], c[1]) {
			s.settle()
			s.page(chromedp.KeyEvent("n"), chromedp.KeyEvent("u"))
		}
		s.page(shows("#position", "no difference"))
		s.settle()
		s.ctrlEnter()
		said = append(said, "accept "+d.ID)
		s.wantSaid(said...)
		if got := s.text(d.ID); got != c[0] {
			t.Errorf("%q instead of %q is %q after undoing each hunk", c[1], c[0], got)
		}
		s.page(shows("#none", "No pending changes"))
	}
}
