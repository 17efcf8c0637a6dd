package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/editor"
)

// yourLines lists the lines that the page marks as the user's.
const yourLines = `JSON.stringify([...document.querySelectorAll(".yours.cm-line")].map(e => e.textContent))`

// yourWords lists the texts that the page marks as the user's.
const yourWords = `JSON.stringify([...document.querySelectorAll(".your-text")].map(e => e.textContent))`

// unseen waits until the user can see no such element.
func unseen(selector string) chromedp.Action[chromedp.Void] {
	return isTrue(`![...document.querySelectorAll(` + quote(selector) + `)].some(e => e.checkVisibility())`)
}

// What the user changed in a hunk looked like the agent's text.
func TestPageMarksYourEdits(t *testing.T) {
	d := change("a")
	d.Original = "one\ntwo\nthree\nfour\n"
	d.Proposed = "one\nTWO\nTWO AND A HALF\nthree\nFOUR\n"
	s := newStage(t, d)
	marked := func(lines string) chromedp.Action[chromedp.Void] { return isTrue(yourLines + " === " + quote(lines)) }
	// The agent's words in such a line are not the user's.
	words := func(texts string) chromedp.Action[chromedp.Void] { return isTrue(yourWords + " === " + quote(texts)) }
	s.page(shows("#position", "hunk 1 of 2"), marked("[]"), unseen("#yours"))
	s.settle()
	s.page(edit, chromedp.KeyEvent("mine "), marked(`["mine TWO"]`), words(`["mine "]`), shows("#captions", "your edits"))
	s.page(chromedp.KeyEvent(kb.End), chromedp.KeyEvent("!"), marked(`["mine TWO!"]`))
	s.page(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("v"), shows(".cm-deletedChunk", "two"), marked(`["mine TWO!"]`), words(`["mine ","!"]`))
	apart := func(selector string) string {
		return `getComputedStyle(document.querySelector(".yours ` + selector + `")).backgroundColor`
	}
	s.page(isTrue(apart(".your-text") + " !== " + apart(".cm-changedText:not(.your-text *)")))
	s.wantContrast("your edits")
	// The text on disk is not the user's.
	s.page(chromedp.KeyEvent("n"), shows("#position", "hunk 2 of 2"), chromedp.KeyEvent("u"), shows("#position", "hunk 1 of 1"), marked(`["mine TWO!"]`))
	s.page(chromedp.Click("#reset"), marked("[]"), unseen("#yours"))
}

// A list of many changes is a tree of folders in the project.
func TestPageListIsATree(t *testing.T) {
	var all []editor.Diff
	for _, path := range []string{"src/a/deep/one.go", "readme.md", "src/b/two.go", "src/a/deep/three.go"} {
		d := change(strings.ReplaceAll(path, "/", "-"))
		d.Path = "/home/me/project/" + path
		all = append(all, d)
	}
	s := newStage(t, all...)
	s.page(shows("#path", "one.go"))
	s.mu.Lock()
	s.roots = []string{"/home/me/project"}
	s.mu.Unlock()
	rows := func(want ...string) chromedp.Action[chromedp.Void] {
		return isTrue(`[...document.querySelectorAll("#list .folder, #list .name")].map(e => e.innerText).join() === ` + quote(strings.Join(want, ",")))
	}
	s.page(chromedp.Reload(), rows("one.go", "readme.md", "two.go", "three.go"), shows(".where", "src/a/deep"))
	s.page(chromedp.Evaluate[chromedp.Void](`document.querySelector("[data-id='src-b-two.go']").focus()`))
	last := change("outside")
	last.Path = "/etc/hosts"
	s.tell(editor.MethodDiffOpen, last)
	s.page(rows("src", "a/deep", "one.go", "three.go", "b", "two.go", "readme.md", "/etc", "hosts"))
	s.page(isTrue(`document.activeElement.dataset.id === "src-b-two.go"`)) // the tree has moved it
	s.page(chromedp.KeyEvent("]"), shows("#path", "src/a/deep/three.go"), chromedp.KeyEvent("]"), shows("#path", "src/b/two.go"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "outside", Reason: editor.ReasonClosed})
	s.page(rows("src", "a/deep", "one.go", "three.go", "b", "two.go", "readme.md")) // no row jumps away
}

// Each word of a new file was marked twice, below buttons for its only hunk.
func TestPageNewFileIsMarkedOnce(t *testing.T) {
	d := change("a")
	d.Exists, d.Original = false, ""
	s := newStage(t, d)
	s.page(shows(".tags", "new file"), shows(".cm-insertedLine", "one"))
	s.page(isTrue(`[...document.querySelectorAll(".cm-changedText")].every(e => getComputedStyle(e).backgroundColor === "rgba(0, 0, 0, 0)")`))
	s.page(unseen(".cm-chunkButtons button"), shows("#accept", "Accept"))
	// A button and a key did nothing that the user could see.
	s.page(unseen("#mode"), chromedp.KeyEvent("v"), shows("#hint", "There is no text on disk"))
}

// The page promised the changes of an agent that asks only in its own terminal.
func TestPageAgentWithoutReview(t *testing.T) {
	s := newStage(t)
	s.page(shows("#none", "appear here"))
	limited := editor.Agent{Name: "opencode", Label: "opencode", Limits: "no review: it asks about changes in its own terminal"}
	s.tell(editor.MethodClients, editor.Clients{Clients: []editor.Agent{limited, limited}})
	s.page(isTrue(`document.querySelector("#none").innerText === ` +
		fmt.Sprintf("%q", "No pending changes.\nopencode has no review: it asks about changes in its own terminal.")))
}
