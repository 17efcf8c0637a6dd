package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pollux/internal/fakemodel"
)

// An emacsTerminal is a package of Emacs that runs the agent's terminal.
type emacsTerminal struct {
	name string
	// leave are the keys that move from the terminal to the other window.
	leave []string
	// read is the expression that lets a user read the terminal like a file.
	read string
	// install returns the lines of init.el that make the package available.
	install func(t *testing.T) string
}

var emacsTerminals = []emacsTerminal{
	{"eat", []string{"C-x", "o"}, "(eat-emacs-mode)", withEat},
	{"vterm", []string{"C-x", "o"}, "(vterm-copy-mode 1)", withVterm},
	{"term", []string{"C-c", "o"}, "(term-line-mode)", func(*testing.T) string { return "" }},
}

// withEat returns the lines of init.el that make Eat available.
func withEat(t *testing.T) string {
	t.Helper()
	eat := filepath.Join(repo, ".cache", "deb", "eat", "usr", "share")
	if _, err := os.Stat(eat); err != nil {
		t.Skipf("scripts/setup.sh could not install Eat: %v", err)
	}
	return withLisp(filepath.Join(eat, "emacs", "site-lisp", "elpa-src")) +
		withLisp(cached(t, "deb", "emacs-terminals", "usr", "share", "emacs", "site-lisp", "elpa-src")) +
		fmt.Sprintf("(setq eat-term-terminfo-directory %q)\n", filepath.Join(eat, "terminfo")) +
		noVterm
}

// withVterm returns the lines of init.el that make vterm available.
func withVterm(t *testing.T) string {
	t.Helper()
	return withVtermSource(t) +
		fmt.Sprintf("(setq load-path (append (file-expand-wildcards \"%s/*/emacs-libvterm\") load-path))\n",
			cached(t, "deb", "emacs-terminals", "usr", "lib"))
}

// withVtermSource is like withVterm, but without vterm's compiled module.
func withVtermSource(t *testing.T) string {
	t.Helper()
	return withLisp(cached(t, "deb", "emacs-terminals", "usr", "share", "emacs", "site-lisp", "elpa-src"))
}

// noVterm removes vterm, which is unpacked next to a package that Eat needs.
const noVterm = `(setq load-path (seq-remove (lambda (dir) (string-match-p "/vterm-" dir)) load-path))` + "\n"

// withLisp returns the line of init.el that makes the packages of a directory available.
func withLisp(dir string) string {
	return fmt.Sprintf("(let ((default-directory %q)) (normal-top-level-add-subdirs-to-load-path))\n", dir)
}

// initEl is the beginning of an init.el.
const initEl = "; -*- lexical-binding: t -*-\n"

// sitInEmacs starts Emacs with lines of init.el.
func (w *world) sitInEmacs(init string, files ...string) *desk {
	w.t.Helper()
	w.writeHome(".emacs.d/init.el", initEl+init)
	return w.sit(kindOf("emacs"), files...)
}

// eachEmacsTerminal runs a test with each package. It passes the lines of init.el that
// make the package available and choose it.
func eachEmacsTerminal(t *testing.T, test func(t *testing.T, terminal emacsTerminal, init string)) {
	for _, terminal := range emacsTerminals {
		t.Run(terminal.name, func(t *testing.T) {
			test(t, terminal, terminal.install(t)+fmt.Sprintf("(setq pollux-terminal-backend '%s)\n", terminal.name))
		})
	}
}

// Gemini CLI runs in each kind of terminal of Emacs: it is connected, it receives keys and
// what the user sends, also while the user reads the terminal, and it ends with its buffer.
func TestEmacsTerminals(t *testing.T) {
	t.Parallel()
	eachEmacsTerminal(t, func(t *testing.T, terminal emacsTerminal, init string) {
		var w *world
		w = newWorld(t, func(r fakemodel.Request) fakemodel.Reply { return typist(agentKinds[0], w)(r) })
		changed := w.file("a.txt", "one\n")
		d := w.sitInEmacs(init, w.file("b.txt", "one\ntwo\nthree\n"))
		d.terminal(agentKinds[0])
		d.until("major-mode", terminal.name+"-mode")
		waitFor(t, "the connection", func() bool {
			return strings.Contains(w.pollux("status"), ") in "+w.project+", connected")
		})

		width := d.ask(d.State.Width)
		d.say("write a.txt=one/two")
		d.shows(changed)
		d.reads(asks)
		d.until(d.State.Terminal, "1")
		d.until(d.State.Width, width)
		d.press("1")
		d.reads(after)
		w.wantFile(changed, "one\ntwo\n")
		d.reads(ready)

		d.press(terminal.leave...)
		d.until(d.State.Terminal, "0")
		d.ask("(with-current-buffer (pollux--terminal) " + terminal.read + ")")
		d.press(emacsHands.send("")...)
		d.reads("@b.txt lines 1-2")

		agent := d.agentTree("node")
		d.ask(`(kill-buffer (pollux--terminal))`)
		for _, pid := range agent {
			waitGone(t, pid)
		}
	})
}

// asked is an agent that shows what it receives and writes each line to a file. Its first
// empty input lines scroll away.
const asked = `#!/bin/bash
stty -icanon -echo
for i in {1..100}; do echo "Type your message"; done
for i in {1..100}; do echo; done
while :; do
	printf 'Type your message'
	line=
	while IFS= read -rN1 character && [ "$character" != $'\n' ]; do
		[ -n "$line" ] || printf '\r\e[K'
		line+=$character
		printf '%s' "$character"
	done
	printf '%s\n' "$line" >>asked
	echo
done
`

// A question is pasted in brackets, and Enter follows once the agent shows the paste on
// its screen. This also works while the user reads the terminal.
func TestEmacsTerminalAsks(t *testing.T) {
	t.Parallel()
	eachEmacsTerminal(t, func(t *testing.T, terminal emacsTerminal, init string) {
		w := newWorld(t, silent)
		agent := filepath.Join(w.home, "asked")
		if err := os.WriteFile(agent, []byte(asked), 0o700); err != nil {
			t.Fatal(err)
		}
		d := w.sitInEmacs(init+fmt.Sprintf("(setq pollux-cli '(%q))\n", agent), w.file("fílé.txt", "one\ntwo\nthree\n"))
		want := ""
		for _, question := range []string{"why is this so?", "and what then?"} {
			d.press(emacsHands.send(question)...)
			want += "\x1b[200~@f\\íl\\é.txt lines 1-2: " + question + "\x1b[201~\n"
			waitFor(t, "the question", func() bool {
				got, _ := os.ReadFile(filepath.Join(w.project, "asked"))
				return string(got) == want
			})
			d.until(d.State.Terminal, "1")
			d.press(terminal.leave...)
			d.until(d.State.Terminal, "0")
			d.ask("(with-current-buffer (pollux--terminal) " + terminal.read + ")")
		}
	})
}

// agentTree waits until a program runs in the last used terminal, and returns the
// terminal's processes.
func (d *desk) agentTree(program string) (tree []int) {
	d.t.Helper()
	waitFor(d.t, program+" in the terminal", func() bool {
		answer, _ := d.Ask(`(process-id (get-buffer-process (pollux--terminal)))`)
		pid, err := strconv.Atoi(answer)
		if err != nil {
			return false
		}
		tree = append(children(d.t, pid), pid)
		return slices.ContainsFunc(tree, func(pid int) bool {
			exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
			return filepath.Base(exe) == program
		})
	})
	return tree
}

// The terminal of an agent that has ended stays, so that the user can read why. The next
// agent gets a new one, and ends with Emacs, which asks nothing.
func TestEmacsTerminalEnds(t *testing.T) {
	t.Parallel()
	eachEmacsTerminal(t, func(t *testing.T, terminal emacsTerminal, init string) {
		w := newWorld(t, silent)
		d := w.sitInEmacs(init+`(setq pollux-cli '("cat"))`, w.file("a.txt", "one\n"))
		d.command("open")
		first := d.agentTree("cat")
		d.until(d.State.Terminal, "1")
		d.press("hello", "Enter", "C-d")
		for _, pid := range first {
			waitGone(t, pid)
		}
		d.until(`(if (pollux--terminal) 1 0)`, "0")
		d.until("(buffer-name)", "*pollux cat*")
		d.until(`(if (string-match-p "hello" (buffer-string)) 1 0)`, "1")
		d.see("no process")

		d.press("C-x", "o")
		d.until(d.State.Terminal, "0")
		d.command("open")
		second := d.agentTree("cat")
		d.until(d.State.Terminal, "1")
		d.until(`(if (string-match-p "hello" (buffer-string)) 1 0)`, "0")
		d.press(terminal.leave...)
		d.until(d.State.Terminal, "0")
		d.press(emacsHands.quit...)
		for _, pid := range append(second, d.PID) {
			waitGone(t, pid)
		}
	})
}

// The option, and what is installed, choose the package. No other package is loaded. A
// package that is missing is an error with the next step.
func TestEmacsTerminalChoice(t *testing.T) {
	t.Parallel()
	none := func(*testing.T) string { return "" }
	both := func(t *testing.T) string { return withEat(t) + withVterm(t) }
	for _, test := range []struct {
		name    string
		install func(t *testing.T) string
		option  string
		want    string // the terminal's package
		see     string // or the error
		loaded  string // of Eat and vterm
	}{
		{"auto with both", both, "'auto", "eat", "", "(t nil)"},
		{"auto with vterm", withVterm, "'auto", "vterm", "", "(nil t)"},
		{"auto with vterm's source", withVtermSource, "'auto", "term", "", "(nil nil)"},
		{"nil with none", none, "nil", "term", "", "(nil nil)"},
		{"term with both", both, "'term", "term", "", "(nil nil)"},
		{"eat with none", none, "'eat", "",
			"is not installed: install it from NonGNU ELPA, or set pollux-terminal-backend to auto", "(nil nil)"},
		{"vterm with none", none, "'vterm", "", "is not installed: install it from MELPA", "(nil nil)"},
		{"a wrong name", none, "'xterm", "", "Set pollux-terminal-backend to auto, eat, vterm or term, not to xterm", "(nil nil)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, silent)
			d := w.sitInEmacs(test.install(t)+`(setq pollux-cli '("cat") pollux-terminal-backend `+test.option+")\n", w.file("a.txt", "one\n"))
			d.command("open")
			if test.want != "" {
				d.until("major-mode", test.want+"-mode")
				d.agentTree("cat")
			} else {
				d.see(test.see)
				if left := d.ask(`(list (get-buffer "*pollux cat*") (length (window-list)))`); left != "(nil 1)" {
					t.Errorf("Emacs has %s", left)
				}
			}
			if loaded := d.ask(`(list (featurep 'eat) (featurep 'vterm))`); loaded != test.loaded {
				t.Errorf("loaded: %s", loaded)
			}
		})
	}
}
