package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
)

// misplaced lists what does not fit the window: its width, the buttons that decide, the
// buttons in the text, and below 450 px or on a screen for fingers the controls that are too
// small to tap or that need a third row.
const misplaced = `(() => {
	const bad = []
	const width = document.documentElement.scrollWidth
	if (width > innerWidth) bad.push("the page is " + width + " px wide")
	const name = (e) => (e.id || e.className || e.tagName) + " " + JSON.stringify(e.textContent.slice(0, 20))
	const inside = (e, box) => {
		const r = e.getBoundingClientRect()
		if (r.left < box.left || r.right > box.right || r.top < box.top || r.bottom > box.bottom) bad.push(name(e) + " is outside: " + JSON.stringify(r))
	}
	const page = new DOMRect(0, 0, innerWidth, innerHeight)
	for (const id of ["accept", "reject"]) inside(document.getElementById(id), page)
	const view = document.querySelector("#view")
	if (view.scrollWidth > view.clientWidth) bad.push("the text is " + view.scrollWidth + " px wide in " + view.clientWidth)
	for (const b of document.querySelectorAll(".cm-chunkButtons button")) inside(b, b.closest(".cm-deletedChunk").getBoundingClientRect())
	const path = document.getElementById("path")
	if (path.checkVisibility()) {
		const end = document.createRange(), text = path.firstChild
		end.setStart(text, text.length - 6)
		end.setEnd(text, text.length - 1)
		if (path.getBoundingClientRect().right - end.getBoundingClientRect().right > 5) bad.push("the end of the path is cut: " + path.textContent)
	}
	const texts = (selector) => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility()).map(e => e.innerText)
	for (const text of texts("#bar button")) if (texts(".cm-chunkButtons button").includes(text)) bad.push("two actions are called " + text)
	for (const e of document.querySelectorAll(".tags")) {
		const name = e.parentElement.querySelector(".name")
		if (e.textContent && innerWidth >= 450 && name.scrollWidth > name.clientWidth && e.getBoundingClientRect().top < name.getBoundingClientRect().bottom) bad.push(name.textContent + " is cut to show " + e.textContent)
	}
	const phone = innerWidth < 450
	if (!phone && !matchMedia("(pointer: coarse)").matches) return bad
	const tops = new Set()
	for (const e of document.querySelectorAll("button, select, summary, .cm-collapsedLines")) {
		if (!e.checkVisibility()) continue
		const r = e.getBoundingClientRect()
		if (r.height < 40) bad.push(name(e) + " is " + r.height + " px high")
		if (e.closest(phone ? "header, nav, #bar" : "header, #bar")) tops.add(Math.round(r.top))
	}
	if (tops.size > 2) bad.push("rows of controls at " + [...tops])
	return bad
})()`

// At 400 px the page was 449 px wide, and Reject was out of sight.
func TestPageNarrow(t *testing.T) {
	t.Parallel()
	big := change("big")
	big.Path, big.Agent = "/project/internal/parse/a_file_with_a_rather_long_name_test.go", "Gemini CLI"
	var before, after strings.Builder
	for i := range 400 {
		line := fmt.Sprintf("\tcase %d: return number(%d, \"%s\")\n", i, i, strings.Repeat("long", 30))
		switch {
		case i%20 == 7:
			after.WriteString(line + "\t// a new line\n")
		case i%20 == 17:
			after.WriteString(strings.ReplaceAll(line, "number", "another"))
		default:
			after.WriteString(line)
		}
		before.WriteString(line)
	}
	big.Original, big.Proposed = before.String(), after.String()
	created, ended, outside, gone := change("new"), change("ended"), change("outside"), change("gone")
	created.Exists, created.Original = false, ""
	ended.State, outside.State, gone.State = editor.StateOrphaned, editor.StateOutside, editor.StateOutside
	gone.Proposed = ""
	files := editor.Outside{Files: []editor.OutsideFile{
		{Path: outside.Path, Change: editor.OutsideChanged}, {Path: gone.Path, Change: editor.OutsideDeleted},
	}}
	for _, screen := range []struct {
		width int64
		touch bool
	}{{320, false}, {400, false}, {768, false}, {768, true}} {
		width, touch := screen.width, screen.touch
		t.Run(fmt.Sprintf("%d,touch=%t", width, touch), func(t *testing.T) {
			var options []chromedp.EmulateViewportOption
			if touch {
				options = append(options, chromedp.EmulateTouch)
			}
			s := newStage(t, big)
			fits := func(what string) {
				t.Helper()
				bad, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]string](misplaced))
				if err != nil || len(bad) > 0 {
					t.Errorf("%s: %v\n%s", what, err, strings.Join(bad, "\n"))
				}
				s.wantContrast(what)
			}
			state := func(id, class, word string) {
				t.Helper()
				s.page(shows(`[data-id="`+id+`"] .tags .`+class, word))
				for _, colours := range []string{"dark", "light"} {
					s.page(theme(colours), isTrue(`(e => getComputedStyle(e).color !== getComputedStyle(e.closest(".item")).color)(document.querySelector('[data-id="`+id+`"] .tags .`+class+`'))`))
				}
			}
			s.page(theme("light"), chromedp.EmulateViewport(width, 640, options...), isTrue(fmt.Sprintf(`matchMedia("(pointer: coarse)").matches === %t`, touch)), shows("#position", "hunk 1 of 40"), shows(".cm-insertedLine", "a new line"))
			s.settle()
			fits("alone")
			for range 19 {
				s.page(chromedp.KeyEvent("n"))
			}
			s.page(shows("#position", "hunk 20 of 40"), shows(".cm-chunkButtons", "Undo"))
			fits("middle")
			s.page(edit, chromedp.KeyEvent("mine"))
			state("big", "edited", "edited")
			for _, d := range []editor.Diff{created, ended} {
				s.tell(editor.MethodDiffOpen, d)
			}
			s.tell(editor.MethodOutside, files)
			s.tell(editor.MethodDiffOpen, outside)
			state("outside", "disk", "changed on disk")
			s.tell(editor.MethodDiffOpen, gone)
			state("gone", "deleted", "deleted")
			state("new", "new", "new file")
			state("ended", "ended", "disconnected")
			s.page(shows("#reject", "Leave it"), shows("#there", "This file was deleted outside Pollux."))
			s.settle()
			fits("outside")
			s.page(chromedp.Click("#outside summary"), chromedp.Click(`//button[contains(., "gone.txt (deleted)")]`),
				isTrue(fmt.Sprintf(`document.querySelector("#outside").open === %t`, width >= 450)))
			s.page(chromedp.Click(chromedp.CSS(`[data-id="ended"]`)), shows("#reject", "Discard"))
			s.settle()
			fits("ended")
			s.script(func(_, _ string) any {
				return editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "It has changed on disk.", Disk: "on disk\n", Version: "v2"}
			})
			s.page(chromedp.Click(chromedp.CSS(`[data-id="new"]`)), shows("#path", "new.txt"))
			s.settle()
			s.ctrlEnter()
			s.page(shows("#conflict-text", "has changed on disk"))
			state("new", "disk", "changed on disk")
			s.settle()
			fits("conflict")
			s.page(chromedp.Click(chromedp.CSS("#help")), shows("#keys[open]", "undo the hunk"), shows("#theme", ""))
			fits("keys")
			s.page(chromedp.Click(chromedp.CSS("#keys-close")))
			for _, d := range []editor.Diff{ended, outside, gone, created, big} {
				s.tell(editor.MethodDiffClose, editor.DiffClose{ID: d.ID, Reason: editor.ReasonRejected})
			}
			// The messages of the corner covered the page.
			s.page(shows("#none", "a_file_with_a_rather_long_name_test.go was rejected"), isTrue(`document.querySelectorAll("#toasts .message").length === 3`))
			fits("history")
		})
	}
}
