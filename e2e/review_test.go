package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/systest"
)

// A seat is `pollux review` on a screen, with a companion and a CLI.
type seat struct {
	screen
	cli    *client.CLI
	editor *plugin
}

// review starts `pollux review`. The companion's editor shows no diffs.
func (w *world) review(columns, lines int, env ...string) *seat {
	w.t.Helper()
	s := w.seat(false)
	s.start(columns, lines, env)
	s.see("No pending changes")
	return s
}

// seat returns a review that has not started.
func (w *world) seat(editorShowsDiffs bool) *seat {
	w.t.Helper()
	e := w.edit(func(p *editor.InitializeParams) { p.Diff = editorShowsDiffs })
	c := e.dial()
	w.env = append(w.env, e.env()...)
	return &seat{screen{nil, w}, c, e}
}

func (s *seat) start(columns, lines int, env []string, args ...string) {
	s.w.t.Helper()
	s.screen = s.w.screenOf(columns, lines, env, append([]string{polluxBinary, "review"}, args...)...)
}

func (s *seat) open(path, text string) {
	s.w.t.Helper()
	if err := s.cli.OpenDiff(s.w.context(), path, text); err != nil {
		s.w.t.Fatal(err)
	}
	s.see(filepath.Base(path))
	s.see("y accept") // not "Look at it first"
}

func TestReviewInATerminal(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("a.txt", "one\ntwo\nthree\n")
	s := w.review(80, 24)
	s.open(path, "ONE\ntwo\nTHREE\nfour\n")
	s.see("hunk 1 of 2")
	s.see("-one")
	s.see("+ONE")
	s.keys("u") // undo the hunk in view
	s.see("~ONE")
	s.keys("a")
	s.see("+ONE")
	s.keys("n")
	s.see("hunk 2 of 2")
	s.keys("u")
	s.see("~THREE")
	s.keys("y")
	wantAccepted(t, s.cli, "ONE\ntwo\nthree\n")
	s.see("No pending changes")

	s.open(path, "no\n")
	s.keys("r")
	received(t, s.cli, "a rejection", rejected)
	s.see("No pending changes")

	// After an answer in the CLI the view closes, and its text is the answer.
	s.open(path, "ONE\ntwo\nthree\n")
	s.keys("u")
	s.see("~ONE")
	if text, err := s.cli.CloseDiff(s.w.context(), path); err != nil || text != `{"content":"one\ntwo\nthree\n"}` {
		t.Errorf("closeDiff answers %q, %v", text, err)
	}
	s.see("No pending changes")

	// The file changes in the meantime.
	s.open(path, "mine\n")
	w.file("a.txt", "theirs\n")
	s.keys("y")
	s.see("has changed on disk")
	s.keys("d")
	s.see("-theirs")
	s.see("y accept") // it has been in view long enough
	s.keys("y")
	s.see("has changed on disk")
	s.see("o overwrite the file")
	s.keys("o")
	wantAccepted(t, s.cli, "mine\n")
	s.see("accepted")
	s.keys("q")
	waitGone(t, s.PID)
}

func TestReviewWithAnEditor(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("a.txt", "same\nsame\none\n")
	vi := w.file("vi", "#!/bin/sh\nprintf 'edited in %s at %s\\n' \"${2##*.}\" \"$1\" > \"$2\"\n")
	if err := os.Chmod(vi, 0o700); err != nil {
		t.Fatal(err)
	}
	s := w.review(150, 40, "EDITOR="+vi)
	s.open(path, "same\nsame\ntwo\n")
	s.see("│") // the side-by-side view
	s.keys("e")
	s.see("edited in txt")
	s.keys("y")
	wantAccepted(t, s.cli, "edited in txt at +3\n")
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
	s.see("y accept")
	if c := s.Coloured(); strings.Contains(c, "\x1b[31m") || strings.Contains(c, "\x1b[32m") {
		t.Errorf("NO_COLOR, and it shows %q", c)
	}
	s.keys("r")
	received(t, s.cli, "a rejection", rejected)
	s.see("+A")
}

// The change is answered, or its companion exits, while the user edits the text
// in an editor. The text is kept, and the user sees where.
func TestReviewEndsWhileEditing(t *testing.T) {
	t.Parallel()
	withdrawn := func(t *testing.T, s *seat, path string) {
		if _, err := s.cli.CloseDiff(s.w.context(), path); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		args []string
		ends bool // the review waits for any key, then ends
		end  func(*testing.T, *seat, string)
	}{
		{"withdrawn", nil, false, withdrawn},
		{"withdrawn, with --once", []string{"--once"}, true, withdrawn},
		{"accepted in another view", nil, false, func(t *testing.T, s *seat, _ string) {
			d := next(t, "change", s.editor.opened)
			if _, err := s.editor.Accept(s.w.context(), editor.DiffAccept{ID: d.ID, Content: d.Proposed}); err != nil {
				t.Fatal(err)
			}
		}},
		{"the companion is killed", nil, true, func(t *testing.T, s *seat, _ string) {
			s.editor.cmd.Process.Kill()
			s.editor.cmd.Wait()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, silent)
			path := w.file("a.txt", "one\n")
			script := w.file("edit.sh", "#!/bin/sh\n: > started\nwhile [ ! -e go ]; do sleep 0.02; done\nprintf 'my words' > \"$1\"\n")
			s := w.seat(true) // otherwise no change could wait before the review starts
			if err := s.cli.OpenDiff(s.w.context(), path, "two\n"); err != nil {
				t.Fatal(err)
			}
			s.start(100, 24, []string{"EDITOR=sh " + script}, test.args...)
			s.see("y accept")
			s.keys("e")
			waitFor(t, "the editor", func() bool { _, err := os.Stat(filepath.Join(w.project, "started")); return err == nil })
			test.end(t, s, path)
			w.file("go", "")
			s.see("your text is in")
			kept, _ := filepath.Glob(filepath.Join(filepath.Dir(w.project), "tmp", "pollux-edit-*", "a.txt"))
			if len(kept) != 1 {
				t.Fatalf("kept: %v", kept)
			}
			systest.WantFile(t, kept[0], "my words")
			if test.ends {
				s.see("any key ends") // after the user has had time to read it
			}
			s.keys("q")
			waitGone(t, s.PID)
		})
	}
}

// popup starts `pollux run --review popup` in tmux. The assignments, as a shell reads
// them, are in the environment of Pollux but not in that of tmux.
func (w *world) popup(assignments ...string) *seat {
	t := w.t
	t.Helper()
	dir := systest.ShortDir(t)
	env := filepath.Join(dir, "env")
	command := fmt.Sprintf("%s %s run --review popup -- sh -c 'env > %s.new; mv %s.new %s; exec sleep 1000'",
		strings.Join(assignments, " "), polluxBinary, env, env, env)
	inner := filepath.Join(dir, "inner.sock")
	s := &seat{screen: w.screen(nil, "env", "-u", "TMUX", "tmux", "-f", "/dev/null", "-S", inner, "new-session", command)}
	t.Cleanup(func() {
		exec.Command("tmux", "-S", inner, "kill-server").Run()
		waitGone(t, w.processes()...)
	})
	waitFor(t, "the CLI", func() bool { _, err := os.Stat(env); return err == nil })
	text, err := os.ReadFile(env)
	if err != nil {
		t.Fatal(err)
	}
	vars := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[name] = value
	}
	port, err := strconv.Atoi(vars["GEMINI_CLI_IDE_SERVER_PORT"])
	if err != nil {
		t.Fatal(err)
	}
	if s.cli, err = client.Dial(w.context(), port, vars["GEMINI_CLI_IDE_AUTH_TOKEN"]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cli.Close)
	return s
}

// In tmux a popup opens when a change waits, and opens again for a change that
// arrives while the first popup closes. It opens the editor of the shell that started Pollux,
// not of tmux's server.
func TestReviewPopup(t *testing.T) {
	s := newWorld(t, silent).popup(`EDITOR='echo "mine, $LC_MESSAGES" >'`, "LC_MESSAGES=of-the-caller")
	for i := range 5 {
		name := fmt.Sprintf("f%d.txt", i)
		s.open(s.w.file(name, "old\n"), "new\n")
		want := "new\n"
		if i == 0 {
			s.keys("e")
			s.see("*mine, of-the-caller")
			want = "mine, of-the-caller\n"
		}
		s.keys("y")
		wantAccepted(t, s.cli, want)
	}
}

// The user sent a prompt and kept typing. The popup opened and received the
// keys, and the y of a word accepted a change that the user had not seen.
func TestReviewPopupWhileTyping(t *testing.T) {
	s := newLoneWorld(t, silent).popup() // on a busy machine, keys come with pauses
	ctx, release := context.WithCancel(s.w.context())
	defer release()
	held := make(chan error, 1)
	go func() { held <- s.Hold(ctx, 200, 100*time.Millisecond, "y") }()
	if err := s.cli.OpenDiff(ctx, s.w.file("a.txt", "old\n"), "new\n"); err != nil {
		t.Fatal(err)
	}
	s.see("This change has just appeared")
	if err := s.Hold(ctx, 30, 50*time.Millisecond, "q"); err != nil {
		t.Fatal(err)
	}
	release()
	<-held
	s.see("y accept") // the keyboard is at rest, and nothing was decided
	s.keys("y")
	wantAccepted(t, s.cli, "new\n")
}
