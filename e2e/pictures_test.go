package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"pollux/editors/editortest"
	"pollux/internal/fakemodel"
)

const (
	greetBefore = "def greet(name):\n    print(\"Hello \" + name)\n\n\ngreet(\"world\")\n"
	greetAfter  = "def greet(name=\"everybody\"):\n    \"\"\"Say hello, politely.\"\"\"\n    print(f\"Hello, {name}!\")\n\n\ngreet(\"world\")\ngreet()\n"
)

// TestPictures takes the pictures in the docs, of real editors with the real
// CLI in their terminals: `make screenshots`.
func TestPictures(t *testing.T) {
	if *screenshots == "" {
		t.Skip("only with -screenshots")
	}
	script := func(a agentKind, w *world) fakemodel.Script {
		path := filepath.Join(w.project, "greet.py")
		return func(r fakemodel.Request) fakemodel.Reply {
			switch {
			case r.Step == 0 && a.read != "":
				return fakemodel.CallTool(a.read, map[string]any{"file_path": path})
			case r.Step == 0, r.Step == 1 && a.read != "":
				return fakemodel.Reply{Parts: []fakemodel.Part{a.write(path, greetAfter)}}
			}
			return fakemodel.Say(after)
		}
	}
	eachAgentInEditor(t, script, func(t *testing.T, a agentKind, w *world, kind editortest.Kind, _ hands) {
		if a.readOnly {
			t.Skip("the docs have no picture of it")
		}
		path := w.file("greet.py", greetBefore)
		w.writeHome(".vimrc", "syntax on\nset background=dark laststatus=2\n")
		d := w.sit(kind, path)
		d.terminal(a)
		d.say("greet everybody by default")
		d.shows(path)
		d.reads(a.asks)
		d.see("everybody")
		name := kind.Name + ".png"
		if a.name != agentKinds[0].name {
			name = a.name + "-" + name
		}
		w.shoot(name, d.Coloured())
	})
	t.Run("terminal", func(t *testing.T) {
		w := newWorld(t, silent)
		s := w.review(130, 24)
		s.open(w.file("greet.py", greetBefore), greetAfter)
		s.see("hunk 1 of")
		w.shoot("terminal.png", s.Coloured())
	})
}

// shoot takes a picture of a terminal.
func (w *world) shoot(name, coloured string) {
	w.t.Helper()
	ctx := browser(w.t)
	page := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Write([]byte(editortest.Page(coloured)))
	}))
	defer page.Close()
	onPage(w.t, ctx, chromedp.Navigate(page.URL))
	png, err := chromedp.Run(ctx, chromedp.Screenshot(chromedp.CSS("pre")))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name), png, 0o644); err != nil {
		w.t.Fatal(err)
	}
}
