package e2e

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
	eachAgentInEditor(t, script, func(t *testing.T, a agentKind, w *world, kind editortest.Kind, h hands) {
		if a.readOnly {
			t.Skip("the docs have no picture of it")
		}
		path := w.file("greet.py", greetBefore)
		w.writeHome(".vimrc", "syntax on\nset background=dark laststatus=2\n")
		d := w.sit(kind, path)
		d.terminal(a)
		started := d.Coloured()
		d.say("greet everybody by default")
		d.shows(path)
		d.reads(a.asks)
		d.see("everybody")
		name := kind.Name + ".png"
		if a.name != agentKinds[0].name {
			name = a.name + "-" + name
		}
		proposed := d.Coloured()
		w.shoot(name, proposed)
		if name == "nvim.png" {
			d.leaveTerminal(h)
			d.enter()
			d.press(h.accepts[0]...)
			d.reads(after)
			w.record("nvim.gif", started, proposed, d.Coloured())
		}
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
	if err := os.WriteFile(filepath.Join(*screenshots, name), w.render(coloured), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// frameTime is how long a recording shows each screen, in hundredths of a second.
const frameTime = 350

// record makes a recording of a terminal from some of its screens.
func (w *world) record(name string, screens ...string) {
	w.t.Helper()
	var all []image.Image
	var bounds image.Rectangle
	for _, s := range screens {
		frame, err := png.Decode(bytes.NewReader(w.render(s)))
		if err != nil {
			w.t.Fatal(err)
		}
		all, bounds = append(all, frame), bounds.Union(frame.Bounds())
	}
	colours := mostUsed(all)
	var out gif.GIF
	for _, frame := range all {
		shown := image.NewPaletted(bounds, colours)
		draw.Draw(shown, bounds, frame, image.Point{}, draw.Src)
		out.Image, out.Delay = append(out.Image, shown), append(out.Delay, frameTime)
	}
	file, err := os.Create(filepath.Join(*screenshots, name))
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	if err := gif.EncodeAll(file, &out); err != nil {
		w.t.Fatal(err)
	}
}

// mostUsed returns the colours that a GIF of the frames has, the most frequent first.
func mostUsed(frames []image.Image) color.Palette {
	n := make(map[color.Color]int)
	for _, frame := range frames {
		for y := range frame.Bounds().Dy() {
			for x := range frame.Bounds().Dx() {
				n[frame.At(x, y)]++
			}
		}
	}
	all := slices.SortedFunc(maps.Keys(n), func(a, b color.Color) int { return n[b] - n[a] })
	return all[:min(len(all), 256)]
}

// render returns a picture of a terminal as PNG.
func (w *world) render(coloured string) []byte {
	w.t.Helper()
	ctx := browser(w.t)
	page := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Write([]byte(editortest.Page(coloured)))
	}))
	defer page.Close()
	onPage(w.t, ctx, chromedp.Navigate(page.URL))
	picture, err := chromedp.Run(ctx, chromedp.Screenshot(chromedp.CSS("pre")))
	if err != nil {
		w.t.Fatal(err)
	}
	return picture
}
