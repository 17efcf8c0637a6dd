package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pollux/internal/editor"
)

// contrasts lists the visible texts that have less contrast with their background than
// 4.5:1, as the browser computes the colours.
const contrasts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
	const rgba = (colour) => {
		canvas.clearRect(0, 0, 1, 1)
		canvas.fillStyle = colour
		canvas.fillRect(0, 0, 1, 1)
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
		return [r, g, b, a / 255]
	}
	const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]))
	const light = (c) => c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
	const parents = (e) => e ? [...parents(e.parentElement), e] : []
	const bad = new Set()
	const check = (e, text) => {
		if (!e.checkVisibility({ visibilityProperty: true }) || e.closest(".hidden")) return
		let back = [255, 255, 255]
		for (const p of parents(e)) back = over(rgba(getComputedStyle(p).backgroundColor), back)
		const style = getComputedStyle(e)
		const fore = over(rgba(style.color), back)
		const [a, b] = [light(fore), light(back)].sort((a, b) => b - a)
		const ratio = (a + 0.05) / (b + 0.05)
		const faded = parents(e).some(p => getComputedStyle(p).opacity < 1)
		if (ratio < 4.5 || faded) bad.add(JSON.stringify(text.slice(0, 30)) + " in " + e.tagName + "." + e.className + ": " + ratio.toFixed(2) + ", " + style.color + " on " + back.map(Math.round))
	}
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	for (let n = walk.nextNode(); n; n = walk.nextNode())
		if (n.data.trim() && !["SCRIPT", "OPTION"].includes(n.parentElement.tagName)) check(n.parentElement, n.data)
	for (const e of document.querySelectorAll("select, input, textarea")) check(e, e.value || e.placeholder || "x")
	return [...bad]
})()`

// theme chooses the page's colours.
func theme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](`(s => { s.value = ` + quote(name) + `; s.dispatchEvent(new Event("change")) })(document.querySelector("#theme"))`)
}

// wantContrast checks the contrast of all texts in both themes.
func (s *stage) wantContrast(what string) {
	s.t.Helper()
	for _, colours := range []string{"dark", "light"} {
		s.page(theme(colours))
		bad, err := chromedp.Run(s.ctx, chromedp.Evaluate[[]string](contrasts))
		if err != nil || len(bad) > 0 {
			s.t.Errorf("%s, %s: %v\n%s", what, colours, err, strings.Join(bad, "\n"))
		}
	}
}

// In the light theme the buttons of the unified view were white on white.
func TestPageContrast(t *testing.T) {
	d := change("a")
	d.Path = "/project/a.go"
	d.Original = "package a\n\n// A comment that stays.\nfunc f(n int) string {\n\t// A comment.\n\treturn \"text\" + g(1, true)\n}\n\ntype T struct{ old int }\n"
	d.Proposed = "package a\n\n// A comment that stays.\nfunc f(n int) string {\n\t// A new comment.\n\treturn \"texts\" + h(2, false, nil)\n}\n\ntype U struct{ new string }\n"
	orphan := change("b")
	orphan.State = editor.StateOrphaned
	s := newStage(t, d, orphan)
	s.page(shows("#path", "a.go"))
	s.wantContrast("just appeared")
	s.settle()
	s.wantContrast("side by side")
	s.page(chromedp.KeyEvent("v"), shows(".cm-deletedChunk", "A comment."))
	s.wantContrast("unified")
	s.page(chromedp.KeyEvent("s"), shows("#kept", "Not decided yet"))
	for _, level := range []string{"info", "warning", "error"} {
		s.tell(editor.MethodMessage, editor.Message{Level: level, Text: "a message: " + level})
		s.page(shows(".message."+level, "a message"))
	}
	s.wantContrast("kept, with messages")
	s.page(edit, chromedp.KeyEvent("f", chromedp.KeyModifiers(kb.ModifierCtrl)), shows(".cm-search", "replace"), chromedp.KeyEvent("return"), shows(".cm-searchMatch", "return"))
	s.wantContrast("search")
	s.page(chromedp.KeyEvent(kb.F1), shows("#keys[open]", "undo the hunk"))
	s.wantContrast("keys")
	s.page(chromedp.KeyEvent(kb.F1), gone("#keys[open]"), unsettled)
	s.script(func(_, _ string) any {
		return editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "It has changed on disk.", Disk: "on disk\n", Version: "v2"}
	})
	s.settle()
	s.ctrlEnter()
	s.page(shows("#conflict-text", "has changed on disk"))
	s.wantContrast("conflict")
	s.page(chromedp.Click(`//button[contains(., "b.txt")]`), shows("#path", "b.txt"), shows("#reject", "Discard"))
	s.settle()
	s.wantContrast("the agent is disconnected")
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonClosed})
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "b", Reason: editor.ReasonClosed})
	s.page(shows("#none", "No pending changes"))
	s.wantContrast("empty")
}

// The theme that the user chose stays after a reload.
func TestPageTheme(t *testing.T) {
	s := newStage(t, change("a"))
	is := func(want string) chromedp.Action[chromedp.Void] {
		return isTrue(`getComputedStyle(document.body).backgroundColor === ` + quote(want))
	}
	const white, black = "rgb(255, 255, 255)", "rgb(22, 24, 29)"
	s.page(shows("#path", "a.txt"), is(white), dark, is(black))
	s.page(theme("light"), is(white), chromedp.Reload(), shows("#path", "a.txt"), is(white))
	s.page(theme("system"), is(black), chromedp.Reload(), shows("#path", "a.txt"), is(black))
}

// notifications replaces those of the browser.
const notifications = `
	window.shown = []; window.asked = 0
	window.Notification = class {
		static permission = "default"
		static async requestPermission() { window.asked++; return this.permission = "granted" }
		constructor(title, options) { this.text = title + ": " + options.body; window.shown.push(this) }
		close() { this.text += " (closed)" }
	}
	document.hasFocus = () => false
`

// The page announces a change while it is not in view, if the user wants that. It
// asks the browser only after a click.
func TestPageNotifies(t *testing.T) {
	s := newStage(t)
	s.page(shows("#none", "No pending changes"))
	firstRuns(t, s.ctx, notifications)
	s.page(chromedp.Reload(), shows("#none", "No pending changes"))
	list := func(want string) {
		t.Helper()
		s.page(isTrue(`window.asked + " " + window.shown.map(n => n.text).join(", ") === ` + quote(want)))
	}
	s.tell(editor.MethodDiffOpen, change("a"))
	s.page(isTrue(`document.title === "(1) a.txt – Pollux review"`))
	list("0 ")
	s.page(chromedp.Click(chromedp.CSS("#notify")), shows("#notify[aria-pressed=true]", "Notify me"))
	list("1 ")
	s.tell(editor.MethodDiffOpen, change("b"))
	list("1 Pollux: CLI 1 proposes a change to b.txt")
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "b", Reason: editor.ReasonClosed})
	list("1 Pollux: CLI 1 proposes a change to b.txt (closed)")
	s.page(chromedp.Click(chromedp.CSS("#notify")), shows("#notify[aria-pressed=false]", "Notify me"))
	s.tell(editor.MethodDiffOpen, change("c"))
	list("1 Pollux: CLI 1 proposes a change to b.txt (closed)")
}

// The page showed absolute paths only.
func TestPageRelativePaths(t *testing.T) {
	d, outside := change("a"), change("b")
	d.Path, outside.Path = "/home/project/sub/dir/a.txt", "/home/project-2/b.txt"
	s := newStage(t, d, outside)
	s.page(shows("#path", "a.txt")) // the link is used up
	s.mu.Lock()
	s.roots = []string{"/home/project"}
	s.mu.Unlock()
	s.page(chromedp.Reload(), shows("#path", "sub/dir/a.txt"))
	text := func(selector, want string) {
		t.Helper()
		s.page(isTrue(fmt.Sprintf(`document.querySelector(%s).textContent.replaceAll("\u200e", "") === %s`, quote(selector), quote(want))))
	}
	text(`[data-id="a"] .where`, "sub/dir")
	text(`[data-id="b"] .where`, "/home/project-2")
	s.mu.Lock()
	s.roots = []string{"/home/project", "/home/project-2"}
	s.mu.Unlock()
	s.page(chromedp.Reload(), shows("#path", "project/sub/dir/a.txt"))
	text(`[data-id="b"] .where`, "project-2")
}

// Two agents of one kind looked the same in the list.
func TestPageNamesAgents(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#status", "1 connected"))
	agents := []editor.Agent{
		{Name: "Gemini CLI", Version: "0.61.0", PID: 123, Terminal: "pts/3"},
		{Name: "Gemini CLI", Version: "0.61.0", PID: 124, Terminal: "pts/4"},
	}
	for i, a := range agents {
		agents[i].Label = a.Describe()
	}
	s.tell(editor.MethodClients, editor.Clients{Clients: agents})
	want := "Gemini CLI 0.61.0 (pid 123, tty pts/3)\nGemini CLI 0.61.0 (pid 124, tty pts/4)"
	s.page(shows("#status", "2 connected"),
		isTrue(`document.querySelector("#status").title === `+strconv.Quote(want)))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonRejected})
	s.tell(editor.MethodClients, editor.Clients{Clients: []editor.Agent{}})
	s.page(shows("#status", "no agent connected"), shows("#none", unconnected+"."))
}

// A tab whose companion had ended used to say "reconnecting" forever.
func TestPageOldTab(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"), shows("#status", "1 connected"))
	s.cut()
	s.page(shows("#status", "reconnecting"))
	s.page(chromedp.Evaluate[chromedp.Void](`(now => { Date.now = () => now() + 130_000 })(Date.now)`), shows("#status", "Pollux has ended or cannot be reached"))
	s.up(change("a"))
	s.page(shows("#status", "1 connected"))
	s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonRejected})
	s.cut()
	s.page(shows("#none", "Pollux has ended or cannot be reached. Your edits are kept: pollux journal lists them."))
}

// The languages that a file's name chooses.
func TestPageLanguages(t *testing.T) {
	s := newStage(t, change("a"))
	s.page(shows("#path", "a.txt"), shows("#status", "1 connected"))
	for _, c := range []struct{ name, line, keyword string }{
		{"a.sh", "if true; then", "if"},
		{"a.rb", "def f", "def"},
		{"a.php", "<?php return 1;", "return"},
		{"A.cs", "public class A {}", "public"},
		{"a.sql", "select 1", "select"},
		{"a.toml", "on = true", ""},
		{"a.lua", "local a = 1", "local"},
		{"a.swift", "let a = 1", "let"},
		{"Dockerfile", "FROM scratch", "FROM"},
		{"a.kt", "fun f() {}", "fun"},
	} {
		d := change("a")
		d.Path, d.Proposed = "/project/"+c.name, c.line+"\n"
		d.Original = "another " + c.name + "\n"
		s.tell(editor.MethodDiffClose, editor.DiffClose{ID: "a", Reason: editor.ReasonClosed})
		s.tell(editor.MethodDiffOpen, d)
		s.page(shows("#path", c.name))
		if c.keyword == "" {
			s.page(shows(`.cm-merge-b [class*="tok-"]`, "true"))
		} else {
			s.page(shows(".cm-merge-b .tok-keyword", c.keyword))
		}
	}
}
