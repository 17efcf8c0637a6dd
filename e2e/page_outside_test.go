package e2e

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

// An agent writes files without asking. The page lists them quietly, shows what changed,
// and takes a hunk back.
func TestPageOutside(t *testing.T) {
	var path, created string
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		switch r.Step {
		case 0:
			return fakemodel.CallTool("write_file", map[string]any{"file_path": path, "content": "1\ntwo\n"})
		case 1:
			return fakemodel.CallTool("write_file", map[string]any{"file_path": created, "content": "new\n"})
		}
		return fakemodel.Say(after)
	})
	path, created = w.file("a.txt", "one\ntwo\n"), filepath.Join(w.project, "new.txt")
	w.repository()
	e := w.edit(func(p *editor.InitializeParams) { p.Diff = false; p.Settings.ReviewPage = true })
	ctx := browser(t)
	onPage(t, ctx, chromedp.Navigate(e.link(ctx)))
	cli := w.gemini(current, e.env(), "--approval-mode", "yolo")
	onPage(t, ctx, shows("#status", "1 connected"), shows("#none", "Gemini CLI changes files without asking"))
	cli.prompt("write the files")
	cli.expect(after)
	onPage(t, ctx,
		shows("#outside summary", "2 files changed outside Pollux"),
		shows("#none", "No pending changes"),
		chromedp.Click("#outside summary"),
		chromedp.Click(`//button[contains(., "a.txt (changed)")]`),
		shows("#path", "a.txt"), shows("#there", "changed outside Pollux"),
		shows(".cm-merge-a", "one"), shows("#reject", "Leave it"),
		settled,
		chromedp.KeyEvent("u"),
		shows("#position", "no difference"),
		settled,
		chromedp.KeyEvent("y"),
		shows("#outside summary", "1 file changed outside Pollux"),
	)
	w.wantFile(path, "one\ntwo\n")
	onPage(t, ctx, chromedp.Click("#outside-keep"), chromedp.WaitNotVisible("#outside"))
	w.wantFile(created, "new\n")
}
