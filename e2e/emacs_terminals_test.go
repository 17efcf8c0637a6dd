package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
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

// addAgent puts an agent on the PATH that shows what it receives. Each line is added to the
// project's file received.NAME, which begins with the port in the agent's environment. The agent's
// first input lines scroll away. It ends after a line with "bye".
func (w *world) addAgent(name string) {
	w.t.Helper()
	const script = `#!/bin/bash
stty -icanon -echo
echo "$GEMINI_CLI_IDE_SERVER_PORT" >"received.${0##*/}"
for i in {1..100}; do echo "Type your message"; done
for i in {1..100}; do echo; done
while [[ $line != *bye* ]]; do
	printf 'Type your message'
	line=
	while IFS= read -rN1 character || exit && [ "$character" != $'\n' ]; do
		[ -n "$line" ] || printf '\r\e[K'
		line+=$character
		printf '%s' "$character"
	done
	printf '%s\n' "$line" >>"received.${0##*/}"
	echo
done
`
	dir := systest.ShortDir(w.t)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.addPath(dir)
}

// wantReceived waits until an agent of [world.addAgent] has received lines. For gemini it also
// checks the port in the agent's environment.
func (d *desk) wantReceived(name string, lines ...string) {
	d.t.Helper()
	want, port := strings.Join(lines, "\n")+"\n", d.ask(d.State.Port)
	waitFor(d.t, fmt.Sprintf("%s to receive %q", name, lines), func() bool {
		data, _ := os.ReadFile(filepath.Join(d.project, "received."+name))
		first, got, _ := strings.Cut(string(data), "\n")
		return got == want && (first == port || name != "gemini")
	})
}

// pasted returns a question as an agent receives it: as a bracketed paste.
func pasted(text string) string { return "\x1b[200~" + text + "\x1b[201~" }

// An agent runs in each kind of terminal of Emacs. It knows the companion, and receives keys, and
// questions also while the user reads the terminal. A change takes neither its keys nor its width.
// The terminal of an agent that has ended stays, so that the user can read why. The next agent
// gets a new one, and ends with its buffer, or with Emacs, which asks nothing.
func TestEmacsTerminals(t *testing.T) {
	t.Parallel()
	eachEmacsTerminal(t, func(t *testing.T, terminal emacsTerminal, init string) {
		w := newWorld(t, silent)
		w.addAgent("gemini")
		path := w.file("fílé.txt", "one\ntwo\nthree\n")
		d := w.sitInEmacs(init+"(setq pollux-cli '(\"gemini\"))\n", path)
		leave := func() {
			t.Helper()
			d.until(d.State.Terminal, "1")
			d.press(terminal.leave...)
			d.until(d.State.Terminal, "0")
		}
		const mention = `@f\íl\é.txt lines 1-2`
		d.press(emacsHands.send("why is this so?")...)
		d.wantReceived("gemini", pasted(mention+": why is this so?"))
		d.until("major-mode", terminal.name+"-mode")

		width, c := d.ask(d.State.Width), d.cli()
		d.review(c, path, "changed\n")
		d.until(d.State.Width, width)
		d.press("hello", "Enter")
		d.wantReceived("gemini", pasted(mention+": why is this so?"), "hello")
		if _, err := c.CloseDiff(d.context(), path); err != nil {
			t.Fatal(err)
		}
		d.until(d.State.Shown, "")

		for _, question := range []string{"", "goodbye"} {
			leave()
			d.ask("(with-current-buffer (pollux--terminal) " + terminal.read + ")")
			d.press(emacsHands.send(question)...)
			d.reads("lines 1-2")
		}
		d.wantReceived("gemini", pasted(mention+": why is this so?"), "hello", pasted(mention+" ")+pasted(mention+": goodbye"))
		d.until(`(if (pollux--terminal) 1 0)`, "0")
		d.until("(buffer-name)", "*pollux gemini*")
		d.until(`(if (string-match-p "goodbye" (buffer-string)) 1 0)`, "1")
		d.see("no process")

		d.press("C-x", "o")
		start := func() []int {
			t.Helper()
			d.until(d.State.Terminal, "0")
			d.command("open")
			agent := d.agentTree("bash")
			d.until(d.State.Terminal, "1")
			d.until(`(if (string-match-p "goodbye" (buffer-string)) 1 0)`, "0")
			return agent
		}
		next := start()
		d.ask(`(kill-buffer (pollux--terminal))`)
		waitGone(t, next...)
		last := start()
		leave()
		d.press(emacsHands.quit...)
		waitGone(t, append(last, d.PID)...)
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

// The option, and what is installed, choose the package. No other package is loaded. A
// package that is missing is an error with the next step.
func TestEmacsTerminalChoice(t *testing.T) {
	t.Parallel()
	const none, eat, vterm = "(nil nil)", "(t nil)", "(nil t)" // loaded of Eat and vterm
	type choice struct {
		option string
		want   string // the terminal's package, or the error
		loaded string
	}
	for _, test := range []struct {
		name    string
		install func(t *testing.T) string
		choices []choice // what is loaded stays
	}{
		{"both", func(t *testing.T) string { return withEat(t) + withVterm(t) }, []choice{{"term", "term", none}, {"auto", "eat", eat}}},
		{"vterm", withVterm, []choice{{"auto", "vterm", vterm}}},
		{"vterm's source", withVtermSource, []choice{{"auto", "term", none}}},
		{"none", func(*testing.T) string { return "" }, []choice{
			{"eat", "is not installed: install it from NonGNU ELPA, or set pollux-terminal-backend to auto", none},
			{"vterm", "is not installed: install it from MELPA", none},
			{"xterm", "Set pollux-terminal-backend to auto, eat, vterm or term, not to xterm", none},
			{"nil", "term", none},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, silent)
			d := w.sitInEmacs(test.install(t)+`(setq pollux-cli '("cat"))`+"\n", w.file("a.txt", "one\n"))
			for _, c := range test.choices {
				d.ask("(setq pollux-terminal-backend '" + c.option + ")")
				d.command("open")
				if !strings.Contains(c.want, " ") {
					d.until("major-mode", c.want+"-mode")
					d.agentTree("cat")
					d.ask("(progn (kill-buffer (pollux--terminal)) (delete-other-windows))")
				} else {
					d.see(c.want)
				}
				if left := d.ask(`(list (get-buffer "*pollux cat*") (length (window-list)))`); left != "(nil 1)" {
					t.Errorf("%s: Emacs has %s", c.option, left)
				}
				if loaded := d.ask(`(list (featurep 'eat) (featurep 'vterm))`); loaded != c.loaded {
					t.Errorf("%s: loaded: %s", c.option, loaded)
				}
			}
		})
	}
}
