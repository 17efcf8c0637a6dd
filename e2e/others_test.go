package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent/agenttest"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/systest"
)

// Editors without a plugin.

// bare starts a program in a terminal, with pollux on the PATH.
func (w *world) bare(argv ...string) screen {
	w.t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" {
			w.t.Fatalf("%v: run scripts/setup.sh", err)
		}
		w.t.Skip(err)
	}
	w.env = append(w.env, "PATH="+filepath.Dir(polluxBinary)+":"+os.Getenv("PATH"))
	return w.screen(nil, argv...)
}

// Kakoune, configured by `pollux install`, next to an agent in `pollux run`.
func TestKakoune(t *testing.T) {
	w := newWorld(t, silent)
	w.useClaude()
	path := w.file("it's a.txt", "one \U0001F600 two\nthree\n")
	w.pollux("install", "kakoune", "--yes")
	end, cli := w.runs()
	defer end()
	active := func(path, selected string, line int) func([]geminiide.File) bool {
		return func(open []geminiide.File) bool {
			return len(open) > 0 && open[0].Path == path && open[0].SelectedText == selected &&
				open[0].Cursor != nil && open[0].Cursor.Line == line
		}
	}
	s := w.bare("kak", path)
	s.keys("ghe") // the first word
	told(t, cli, "the first word", active(path, "one", 1))
	c := w.dialIDE()
	for _, choice := range []choice{
		{[]string{"ghe"}, "one", "0:0-0:3"},
		{[]string{"gl", "b"}, "two", "0:7-0:10"}, // from right to left
		{[]string{"gh", "x"}, "one \U0001F600 two\n", "0:0-1:0"},
		{[]string{"gh", "ll", "LL"}, "e \U0001F600", "0:2-0:6"},
	} {
		t.Logf("%q", choice.keys)
		s.keys(strings.Join(choice.keys, ""))
		c.wantSelected(path, choice.text, choice.where)
	}
	s.keys("gggj")
	s.keys("gjghGk") // backwards, from the second line
	s.keys(":pollux-send")
	s.press("Enter")
	s.see("Sent to test.")
	c.wantMentioned(path, 0, 1)
	s.keys(":pollux-send why's that $(touch x)?")
	s.press("Enter")
	s.see("runs in a terminal in which Pollux cannot type")
	if _, err := os.Stat(filepath.Join(w.project, "x")); err == nil {
		t.Error("the question was run as a command")
	}
	s.keys("gjgh")
	told(t, cli, "the second line", active(path, "", 2))
	// What the user saves in Kakoune is not a change outside Pollux.
	other := w.file("other.txt", "one\n")
	s.keys(":edit other.txt")
	s.press("Enter")
	told(t, cli, "the other file", active(other, "", 1))
	s.keys("ga") // back
	s.keys("ggOmine")
	s.see(" insert ")
	s.press("Escape")
	// Kakoune takes an Escape and the next key for one key with Alt if it reads both in one piece.
	waitFor(t, "normal mode", func() bool { return !strings.Contains(s.Text(), " insert ") })
	s.keys(":write")
	s.press("Enter")
	w.wantOutside(path, "mine\n", other, "two\n")
	s.keys(":quit")
	s.press("Enter")
	told(t, cli, "that nothing is open", func(open []geminiide.File) bool { return len(open) == 0 })
}

// Kakoune starts a program for each event, and the machine may run a later one first. An event
// that arrived after the close of its file made the file open again. The last one may run when the
// terminal is gone.
func TestKakouneOrder(t *testing.T) {
	w := newWorld(t, silent)
	a, b := w.file("a.txt", "one\ntwo\n"), w.file("b.txt", "one\ntwo\n")
	c := w.seat(false).cli
	w.pollux("install", "kakoune", "--yes")
	dir := systest.ShortDir(t)
	late, arrived := filepath.Join(dir, "late"), filepath.Join(dir, "arrived")
	succeed(t, exec.Command("mkfifo", late))
	slow := agenttest.WriteProgram(t, dir, "pollux", fmt.Sprintf(`case "$*" in
*"/a.txt --line 2 "*) cat %q; %[3]q "$@"; : >%[2]q; exit ;;
*"--event quit") while kill -0 "${4#kakoune-}"; do :; done ;;
esac
exec %[3]q "$@"`, late, arrived, polluxBinary), "")
	settings := filepath.Join(w.home, ".config", "kak", "kakrc")
	systest.WriteFile(t, settings, strings.ReplaceAll(systest.ReadFile(t, settings), polluxBinary, slow))
	opens := func(paths ...string) func(open []geminiide.File) bool {
		return func(open []geminiide.File) bool {
			return slices.EqualFunc(open, paths, func(f geminiide.File, path string) bool { return f.Path == path })
		}
	}

	s := w.bare("kak", a)
	told(t, c, "a.txt", opens(a))
	s.keys("j")
	hold, err := os.OpenFile(late, os.O_WRONLY, 0) // once the event waits
	if err != nil {
		t.Fatal(err)
	}
	s.keys(":edit b.txt")
	s.press("Enter")
	told(t, c, "both files", opens(b, a))
	s.keys(":delete-buffer a.txt")
	s.press("Enter")
	told(t, c, "that a.txt is closed", opens(b))
	hold.Close()
	waitFor(t, "the late event", func() bool { _, err := os.Stat(arrived); return err == nil })
	s.keys("j")
	told(t, c, "the second line of b.txt", func(open []geminiide.File) bool {
		if len(open) == 0 || open[0].Path != b || open[0].Cursor == nil || open[0].Cursor.Line != 2 {
			return false
		}
		if !opens(b)(open) {
			t.Errorf("open are %+v", open)
		}
		return true
	})
	s.keys(":quit")
	s.press("Enter")
	told(t, c, "that nothing is open", opens())
}

// endpoint returns the port and the token from the only discovery file.
func (w *world) endpoint() (port int, token string, ok bool) {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(w.project), "tmp", "gemini", "ide", "*"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		var v struct {
			Port      int
			AuthToken string
		}
		if err == nil && json.Unmarshal(data, &v) == nil {
			return v.Port, v.AuthToken, true
		}
	}
	return 0, "", false
}

// A real language client, Neovim's own, without a plugin.
func TestLanguageClient(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("a.txt", "one \U0001F600 two\nthree\n")
	script := w.file("client.lua", `
local id = vim.lsp.start_client({ name = "pollux", cmd = { "pollux", "lsp" }, root_dir = vim.fn.getcwd() })
vim.lsp.buf_attach_client(0, id)
vim.keymap.set("n", "gh", vim.lsp.buf.document_highlight)
vim.keymap.set({ "n", "x" }, "ga", vim.lsp.buf.code_action)
vim.keymap.set("x", "gA", vim.lsp.buf.range_code_action or vim.lsp.buf.code_action)
`)
	s := w.bare("nvim", "--clean", "-S", script, path)
	var c *client.CLI
	waitFor(t, "the companion", func() bool {
		port, token, ok := w.endpoint()
		if !ok {
			return false
		}
		var err error
		c, err = client.Dial(w.context(), port, token)
		return err == nil
	})
	t.Cleanup(c.Close)
	open := func(fits func(f geminiide.File) bool) func([]geminiide.File) bool {
		return func(open []geminiide.File) bool {
			return slices.ContainsFunc(open, func(f geminiide.File) bool { return f.Path == path && fits(f) })
		}
	}
	told(t, c, "the file", open(func(geminiide.File) bool { return true }))
	s.keys("fwgh")
	told(t, c, "the column after an emoji", open(func(f geminiide.File) bool {
		return f.IsActive && f.Cursor != nil && *f.Cursor == editor.Cursor{Line: 1, Character: 9}
	}))
	s.keys("jA!") // typing moves the cursor too
	told(t, c, "the end of the second line", open(func(f geminiide.File) bool {
		return f.Cursor != nil && *f.Cursor == editor.Cursor{Line: 2, Character: 7}
	}))
	s.see("-- INSERT --")
	s.press("Escape")
	waitFor(t, "the end of the insert mode", func() bool { return !strings.Contains(s.Text(), "-- INSERT --") })

	if err := c.OpenDiff(w.context(), path, "two\n"); err != nil {
		t.Fatal(err)
	}
	s.see("Gemini CLI proposes a change to a.txt")
	s.keys("2")
	s.press("Enter")
	wantAccepted(t, c, "two\n")
	if err := c.OpenDiff(w.context(), path, "three\n"); err != nil {
		t.Fatal(err)
	}
	s.see("Gemini CLI proposes a change to a.txt")
	s.press("Enter") // Enter alone chooses nothing
	s.keys("ga")
	s.see("Gemini CLI: reject the change to a.txt")
	s.keys("3")
	s.press("Enter")
	received(t, c, "a rejection", rejected)
	s.keys(":qa!")
	s.press("Enter")
	waitGone(t, s.PID)
	waitFor(t, "the files to be gone", func() bool { return len(w.left()) == 0 })
}

// Helix, driven by keys. Debian 12 does not package it:
// scripts/newer-editors.sh runs this test.
func TestHelix(t *testing.T) {
	if out, err := exec.Command("hx", "--version").Output(); err != nil || strings.Contains(string(out), " 25.01") {
		t.Skipf("no Helix 25.07 or newer: %s %v", out, err)
	}
	w := newWorld(t, silent)
	path := w.file("it's $(touch x).txt", "one \U0001F600 two\nthree\n")
	w.pollux("install", "helix", "--yes")
	c := w.seat(false).cli
	s := w.bare("hx", path)
	s.see("three")
	s.keys("w")
	s.keys(" if")
	told(t, c, "the selection", func(open []geminiide.File) bool {
		return len(open) == 1 && open[0].Path == path && open[0].SelectedText == "one " && *open[0].Cursor == editor.Cursor{Line: 1, Character: 4}
	})
	s.keys("glh") // the last character but one
	s.keys(" if")
	told(t, c, "the column after an emoji", func(open []geminiide.File) bool {
		return open[0].SelectedText == "" && *open[0].Cursor == editor.Cursor{Line: 1, Character: 9}
	})
	s.keys(" ic")
	told(t, c, "that it is closed", func(open []geminiide.File) bool { return len(open) == 0 })
	if _, err := os.Stat(filepath.Join(w.project, "x")); err == nil {
		t.Error("the file's name was run as a command")
	}
}
