package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/adapter"
	"pollux/internal/editortest"
	"pollux/internal/wirecli"
)

// A seat is `pollux review` in a terminal, at a companion with a CLI.
type seat struct {
	*world
	*editortest.Screen
	t   *testing.T
	cli *wirecli.CLI
}

// review starts it. The companion's editor shows no diffs.
func (w *world) review(columns, lines int, env ...string) *seat {
	w.t.Helper()
	e := w.edit(func(p *adapter.InitializeParams) { p.Diff = false })
	c, err := wirecli.Dial(w.context(), e.info.Port, e.info.Token)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	dir, err := os.MkdirTemp("", "px")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	screen, err := editortest.NewScreen(dir, w.project, append(append(w.env, e.env()...), env...), columns, lines, polluxBinary, "review")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the screen:\n%s", screen.Text())
		}
		screen.Close()
		waitGone(w.t, screen.PID)
	})
	s := &seat{w, screen, w.t, c}
	s.see("Nothing waits")
	return s
}

func (s *seat) see(text string) {
	s.t.Helper()
	if err := s.Wait(s.context(), text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) open(path, text string) {
	s.t.Helper()
	if err := s.cli.OpenDiff(s.context(), path, text); err != nil {
		s.t.Fatal(err)
	}
	s.see(filepath.Base(path))
}

func (s *seat) keys(keys string) {
	s.t.Helper()
	if err := s.Type(keys); err != nil {
		s.t.Fatal(err)
	}
}

func TestReviewInATerminal(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("a.txt", "one\ntwo\nthree\n")
	s := w.review(80, 24)
	s.open(path, "ONE\ntwo\nTHREE\nfour\n")
	s.see("hunk 1 of 2")
	s.see("-one")
	s.see("+ONE")
	for i, line := range strings.Split(s.Text(), "\n") {
		if len([]rune(line)) > 80 {
			t.Errorf("line %d is %d columns wide", i, len([]rune(line)))
		}
	}
	s.keys("u") // undone, and in sight
	s.see("~ONE")
	s.keys("a")
	s.see("+ONE")
	s.keys("n")
	s.see("hunk 2 of 2")
	s.keys("u")
	s.see("~THREE")
	s.keys("y")
	if got := accepted(t, s.cli); got != "ONE\ntwo\nthree\n" {
		t.Errorf("accepted %q", got)
	}
	s.see("Nothing waits")

	s.open(path, "no\n")
	s.keys("r")
	heard(t, s.cli, "a rejection", rejected)
	s.see("Nothing waits")

	// Answered in the CLI: the view closes, and its text is the answer.
	s.open(path, "ONE\ntwo\nthree\n")
	s.keys("u")
	s.see("~ONE")
	if text, err := s.cli.CloseDiff(s.context(), path); err != nil || text != `{"content":"one\ntwo\nthree\n"}` {
		t.Errorf("closeDiff answers %q, %v", text, err)
	}
	s.see("Nothing waits")

	// The file changes meanwhile.
	s.open(path, "mine\n")
	w.file("a.txt", "theirs\n")
	s.keys("y")
	s.see("has changed on disk")
	s.keys("d")
	s.see("-theirs")
	s.keys("y")
	s.see("has changed on disk")
	s.keys("o")
	if got := accepted(t, s.cli); got != "mine\n" {
		t.Errorf("accepted %q", got)
	}
	s.keys("q")
	waitGone(t, s.PID)
}

func TestReviewWithAnEditor(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("a.txt", "one\n")
	script := w.file("edit.sh", "#!/bin/sh\nprintf 'edited in %s\\n' \"${1##*.}\" > \"$1\"\n")
	s := w.review(150, 40, "EDITOR=sh "+script)
	s.open(path, "two\n")
	s.see("│") // side by side
	s.keys("e")
	s.see("edited in txt")
	s.keys("y")
	if got := accepted(t, s.cli); got != "edited in txt\n" {
		t.Errorf("accepted %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(w.project), "tmp", "pollux-edit-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReviewSeveral(t *testing.T) {
	w := newWorld(t, silent)
	s := w.review(80, 24, "NO_COLOR=1")
	s.open(w.file("a.txt", "a\n"), "A\n")
	s.open(w.file("b.txt", "b\n"), "B \x1b[31m\t\U0001F600\n")
	s.see("> a.txt")
	if err := s.Keys("Tab"); err != nil {
		t.Fatal(err)
	}
	s.see("> b.txt")
	s.see("+B ␛[31m")
	if c := s.Coloured(); strings.Contains(c, "\x1b[31m") || strings.Contains(c, "\x1b[32m") {
		t.Errorf("NO_COLOR, and it shows %q", c)
	}
	s.keys("r")
	heard(t, s.cli, "a rejection", rejected)
	s.see("+A")
	s.keys("?")
	s.see("Any key goes on")
	s.keys("q")
	s.see("+A")
}
