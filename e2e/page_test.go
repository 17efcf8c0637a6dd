package e2e

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

var screenshots = flag.String("screenshots", "", "write the page's pictures into this directory")

// chromium starts the Chromium that the tests share. endChromium ends it.
var (
	chromium = sync.OnceValues(startChromium)

	endChromium = func() {}
)

func startChromium() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.WindowSize(1280, 720),
		// The first two are chromedp's. The others prepare suggestions for the address bar,
		// which takes a second of the processor, and processes for pages that never come.
		chromedp.Flag("disable-features", "Translate,BlinkGenPropertyTrees,WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess"),
		// Each test needs one process, not four.
		chromedp.Flag("disable-site-isolation-trials", true), chromedp.Flag("renderer-process-limit", "1"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, _ := chromedp.NewContext(allocator)
	endChromium = end
	return ctx, chromedp.Do(ctx)
}

// browser opens a tab in the shared Chromium. Tests share no cookies and no storage.
func browser(t *testing.T) context.Context {
	t.Helper()
	ctx, err := chromium()
	switch {
	case err != nil && os.Getenv("POLLUX_E2E") == "require":
		t.Fatalf("run scripts/setup.sh: %v", err)
	case err != nil:
		t.Skipf("run scripts/setup.sh: %v", err)
	}
	ctx, cancel := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	firstRuns(t, ctx, pageLog)
	return ctx
}

// firstRuns makes each page of a tab run a script before its own.
func firstRuns(t *testing.T, ctx context.Context, script string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) (page.AddScriptToEvaluateOnNewDocumentResult, error) {
		return cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	}); err != nil {
		t.Fatal(err)
	}
}

// newTab opens another tab of a browser.
func newTab(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	tab, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(tab); err != nil { // opens the tab
		t.Fatal(err)
	}
	return tab
}

// link returns a one-time link to an editor's review page.
func (e *plugin) link(ctx context.Context) string {
	e.t.Helper()
	var l editor.Link
	if err := e.Call(ctx, editor.MethodReviewLink, nil, &l); err != nil {
		e.t.Fatal(err)
	}
	return l.URL
}

func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pageLog records the keys that reach a page, with what the page knows when it handles
// them, and the hints that refuse a decision. A hint disappears soon.
const pageLog = `{
	const log = window.testLog = []
	addEventListener("keydown", (e) => log.push([
		"key", e.ctrlKey && "Ctrl", e.shiftKey && "Shift", e.code, "at", e.timeStamp, "handled at", performance.now(),
		document.querySelector("#accept")?.getAttribute("aria-disabled") === "true" ? "disabled" : "enabled",
	].filter(Boolean).join(" ")), { capture: true })
	addEventListener("DOMContentLoaded", () => {
		const hint = document.querySelector("#hint")
		if (hint) new MutationObserver(() => log.push("hint " + hint.textContent)).observe(hint, { childList: true })
	})
}`

// pageState tells what a page shows and what a decision on it waits for. The page, and
// most waits of the tests, need frames.
const pageState = `new Promise(resolve => {
	const tell = (frames) => resolve([
		"Chromium draws " + frames,
		"document.hidden is " + document.hidden,
		"the focus is in " + (document.activeElement.id || document.activeElement.className),
		"Accept is " + (document.querySelector("#accept")?.getAttribute("aria-disabled") === "true" ? "disabled" : "enabled"),
		"it received " + JSON.stringify((window.testLog ?? []).slice(-20)),
		"the page shows " + JSON.stringify(document.body.innerText),
	].join("; "))
	requestAnimationFrame(() => tell("frames"))
	setTimeout(() => tell("no frames"), 1000)
})`

// onPage runs actions. If they fail it prints the state of the page.
func onPage(t *testing.T, ctx context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	within, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(within, actions...); err != nil {
		state, _ := chromedp.Run(ctx, chromedp.Evaluate[string](pageState, chromedp.EvalAwaitPromise))
		t.Fatalf("%v; %s", err, state)
	}
}

// isTrue waits until an expression in JavaScript is true.
func isTrue(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(stepTimeout))
}

// shows waits until an element that the user can see contains the text.
func shows(selector, text string) chromedp.Action[chromedp.Void] {
	return isTrue(`[...document.querySelectorAll(` + quote(selector) + `)].some(e => e.checkVisibility() && e.innerText.includes(` + quote(text) + `))`)
}

// unsettled waits until the page allows no decision, for example after a dialog has closed.
var unsettled = isTrue(`document.querySelector("#accept").getAttribute("aria-disabled") === "true"`)

// settled waits until the page allows a decision on the change in view.
var settled = isTrue(`document.querySelector("#accept").getAttribute("aria-disabled") !== "true"`)

// edit presses the key that moves the focus into the text. chromedp.KeyEvent would also
// send the character, which a browser does not if the page has handled the key.
func edit(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
	key := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Code: "KeyE", Key: "e", Text: "e", WindowsVirtualKeyCode: 'E'}
	if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, key); err != nil {
		return chromedp.Void{}, err
	}
	key.Type, key.Text = input.DispatchKeyEventTypeKeyUp, ""
	_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, key)
	return chromedp.Void{}, err
}

func dark(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	return chromedp.Void{}, err
}

func quote(s string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`) + `"`
}

const pageBefore = `package greet

import "fmt"

// Hello greets.
func Hello(name string) {
	fmt.Println("Hello " + name)
}

func Bye() {
	fmt.Println("Bye")
}
`

const pageAfter = `package greet

import (
	"fmt"
	"strings"
)

// Hello greets a person by name, or everybody.
func Hello(name string) {
	if name = strings.TrimSpace(name); name == "" {
		name = "everybody"
	}
	fmt.Printf("Hello, %s!\n", name)
}

func Bye() {
	fmt.Println("Bye")
}
`

// The page in a real browser, with the real CLI: a diff arrives, is edited,
// survives a reload, and is accepted with its edits. Then another CLI, which the test plays, waits
// too. The page lists both, narrow and dark, and rejects one.
func TestPageEditsAndAccepts(t *testing.T) {
	var w *world
	w = newWorld(t, changes(func(name string) []fakemodel.Part {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		return []fakemodel.Part{writeFile("write_file")(filepath.Join(w.project, name), pageAfter)}
	}))
	path, created := w.file("greet.go", pageBefore), filepath.Join(w.project, "new.txt")
	w.file("hello.go", pageBefore)
	e := w.edit(onlyPage)
	ctx := browser(t)
	onPage(t, ctx, chromedp.Navigate(e.link(ctx)), shows("#none", "No agent is connected"))
	cli := e.gemini(w)
	onPage(t, ctx, shows("#none", "No pending changes"))
	cli.prompt("change greet.go")
	onPage(t, ctx,
		shows(".cm-merge-a", `fmt.Println("Hello " + name)`),
		shows(".cm-merge-b", "Hello, %s!"),
		shows("#path", "greet.go"),
		settled,
	)
	picture(t, ctx, "review.png")
	// Type at the first change, using only the keyboard.
	onPage(t, ctx, settled, edit, chromedp.KeyEvent("// mine\n"), shows(".cm-merge-b", "// mine"), shows(".tags", "edited"))
	diffs := func() []editor.Diff {
		all, err := e.Diffs(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("diffs = %v, %v", all, err)
		}
		return all
	}
	onPage(t, ctx, chromedp.Reload(), shows(".cm-merge-b", "// mine"))
	waitFor(t, "the edit at the companion", func() bool { return strings.Contains(diffs()[0].Text(), "// mine\n") })
	onPage(t, ctx,
		chromedp.Focus(chromedp.CSS(".revert")), // the first chunk, the user's and the imports
		chromedp.KeyEvent(kb.Enter),
		shows(".cm-merge-b", `import "fmt"`),
		settled,
		chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(kb.ModifierCtrl)), // Ctrl-Enter
		shows("#none", "No pending changes"),
	)
	cli.expect(changedFile("greet.go"))
	got, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(got), `import "fmt"`) || !strings.Contains(string(got), "everybody") {
		t.Errorf("the file holds %q, %v", got, err)
	}

	// The page counts as a view: an error for openDiff would break a yes in the terminal.
	cli.prompt("change greet.go")
	onPage(t, ctx, shows("#path", "greet.go"))
	cli.expect(asks)
	cli.keys("1")
	cli.expect(changedFile("greet.go"))
	w.wantFile(path, pageAfter)
	onPage(t, ctx, shows("#none", "No pending changes"))

	cli.prompt("change hello.go")
	cli.expect(asks)
	onPage(t, ctx, shows(".name", "hello.go"))
	other := e.dial()
	if err := other.OpenDiff(w.context(), created, "new file\n"); err != nil {
		t.Fatal(err)
	}
	onPage(t, ctx,
		shows(".name", "new.txt"), shows(".tags", "new file"),
		dark,
	)
	picture(t, ctx, "review-dark.png")
	onPage(t, ctx, chromedp.EmulateViewport(600, 800), shows("#view .cm-insertedLine", "everybody"))
	picture(t, ctx, "review-narrow.png")
	onPage(t, ctx,
		chromedp.EmulateViewport(1280, 720),
		shows(".cm-merge-a", "package greet"),
		chromedp.Click(`//button[contains(., "new.txt")]`),
		shows("#path", "new.txt"),
		settled,
		chromedp.KeyEvent(kb.Backspace, chromedp.KeyModifiers(kb.ModifierCtrl, kb.ModifierShift)), // Ctrl-Shift-Backspace
		shows("#path", "hello.go"),
	)
	received(t, other, "a rejection", rejected)
	// The editor has exited: the page says so, and the CLI gets an answer.
	e.Client.Close()
	cli.expect("Request cancelled")
	onPage(t, ctx, shows("#status", "reconnecting"))
}
