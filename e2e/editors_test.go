package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pollux/editors/editortest"
	"pollux/internal/agent/agenttest"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/systest"
)

// A desk is a real editor in a terminal, with Pollux's plugin installed as a
// user would.
type desk struct {
	*world
	*editortest.Editor
	t *testing.T
}

// sit installs the plugin, starts an editor on files of the project, and waits for its
// companion.
func (w *world) sit(kind editortest.Kind, files ...string) *desk {
	w.t.Helper()
	d := w.begin(kind, files...)
	d.until(kind.State.Started, "1")
	return d
}

// begin installs the plugin and starts an editor on files of the project.
func (w *world) begin(kind editortest.Kind, files ...string) *desk {
	w.t.Helper()
	if _, err := exec.LookPath(kind.Binary); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" {
			w.t.Fatalf("%v: run scripts/setup.sh", err)
		}
		w.t.Skip(err)
	}
	dir := systest.ShortDir(w.t)
	cli := installed(w.t, "gemini-"+current, "node_modules", ".bin")
	path := strings.Join(append(w.path, filepath.Dir(polluxBinary), cli, os.Getenv("PATH")), ":")
	w.env = append(w.env, "PATH="+path, "SHELL=/bin/bash", "REMOTE_CONTAINERS=1", "EDITOR=", "COLUMNS=", "LINES=")
	w.pollux("install", kind.Name, "--yes")
	return w.open(kind, dir, files...)
}

// open starts an editor that has the plugin.
func (w *world) open(kind editortest.Kind, dir string, files ...string) *desk {
	w.t.Helper()
	e, err := kind.Start(w.context(), dir, w.project, w.env, files...)
	if err != nil {
		w.t.Fatal(err)
	}
	d := &desk{w, e, w.t}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("%s shows:\n%s\nthe log:\n%s", kind.Name, e.Text(), w.pollux("log"))
		}
		below := children(w.t, e.PID)
		e.Close()
		waitEnded(w.t, e.PID)
		endCLIs(w.t, below)
	})
	return d
}

func (d *desk) until(expression, value string) {
	d.t.Helper()
	if err := d.Until(d.context(), expression, value); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) press(keys ...string) {
	d.t.Helper()
	if err := d.Press(keys...); err != nil {
		d.t.Fatal(err)
	}
}

// command runs one of the plugin's commands.
func (d *desk) command(name string) {
	d.t.Helper()
	d.press(d.Command(name)...)
}

func (d *desk) ask(expression string) string {
	d.t.Helper()
	text, err := d.Ask(expression)
	if err != nil {
		d.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

// holds waits until a buffer has the given text. In Emacs the last line feed is
// a part of the buffer.
func (d *desk) holds(expression, text string) {
	d.t.Helper()
	if d.Name != "emacs" {
		text = strings.TrimSuffix(text, "\n")
	}
	waitFor(d.t, fmt.Sprintf("%s to be %q", expression, text), func() bool {
		var v struct{ Text string }
		answer, err := d.Ask(expression)
		return err == nil && json.Unmarshal([]byte(answer), &v) == nil && v.Text == text
	})
}

// shows waits until the diff of a file is on the screen and the user can
// decide.
func (d *desk) shows(path string) {
	d.t.Helper()
	d.until(d.State.Shown, path)
	d.until(d.State.Ready, path)
}

// propose lets a CLI propose a change.
func (d *desk) propose(c *client.CLI, path, text string) {
	d.t.Helper()
	if err := c.OpenDiff(d.context(), path, text); err != nil {
		d.t.Fatal(err)
	}
}

// review lets a CLI propose a change, and waits until the user can decide.
func (d *desk) review(c *client.CLI, path, text string) {
	d.t.Helper()
	d.propose(c, path, text)
	d.shows(path)
}

// resize changes the size of the editor's terminal.
func (d *desk) resize(columns, lines int) {
	d.t.Helper()
	if err := d.Resize(columns, lines); err != nil {
		d.t.Fatal(err)
	}
	d.until(d.State.Width, strconv.Itoa(columns))
}

// settle sets the time in milliseconds that a diff must be in view before the
// user can decide.
func (d *desk) settle(ms int) {
	d.t.Helper()
	d.ask(d.State.SetSettle(ms))
}

// enter moves the cursor into the diff on the screen.
func (d *desk) enter() {
	d.t.Helper()
	d.command("next")
	d.until(d.State.Inside, "1")
}

func (d *desk) see(text string) {
	d.t.Helper()
	if err := d.Wait(d.context(), text); err != nil {
		d.t.Fatal(err)
	}
}

// answers waits until the editor shows one of the messages, and clears it. Emacs drops
// the keys that were pressed before it reports an error.
func (d *desk) answers(messages ...string) {
	d.t.Helper()
	shown := func(text string) bool { return strings.Contains(d.Text(), text) }
	waitFor(d.t, fmt.Sprintf("one of %q", messages), func() bool { return slices.ContainsFunc(messages, shown) })
	d.press("C-l")
	waitFor(d.t, "the message to end", func() bool { return !slices.ContainsFunc(messages, shown) })
}

// reads waits until the agent's terminal shows a text.
func (d *desk) reads(text string) {
	d.t.Helper()
	waitFor(d.t, fmt.Sprintf("%q in the terminal", text), func() bool { return d.readable(d.Text(), text) })
}

// readable reports whether a screen shows a text. When an agent skips cells instead of
// writing them, Emacs' term shows too many spaces, or a word without one letter.
func (d *desk) readable(screen, text string) bool {
	words := strings.Fields(screen)
	if strings.Contains(strings.Join(words, ""), strings.Join(strings.Fields(text), "")) {
		return true
	}
	for i := range len(text) - 1 { // the last letter shows that all were typed
		if d.Name == "emacs" && slices.Contains(words, text[:i]+text[i+1:]) {
			return true
		}
	}
	return false
}

// terminal runs the plugin's command that starts the agent in the editor's
// terminal.
func (d *desk) terminal(a agentKind) {
	d.t.Helper()
	d.command("open")
	d.reads(a.ready)
	d.until(d.State.Terminal, "1")
}

// say sends a prompt to the agent.
func (d *desk) say(prompt string) {
	d.t.Helper()
	typed := time.Now()
	d.press(prompt)
	d.reads(prompt[strings.LastIndex(prompt, " ")+1:]) // Emacs' term shows wrong characters before that
	pauseBeforeEnter(typed)
	d.press("Enter")
}

// cli connects a client without a real CLI to the editor's companion.
func (d *desk) cli() *client.CLI {
	d.t.Helper()
	port, err := strconv.Atoi(d.ask(d.State.Port))
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := client.Dial(d.context(), port, d.ask(d.State.Token))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(c.Close)
	return c
}

// received waits for a matching notification.
func received(t *testing.T, c *client.CLI, what string, fits func(client.Notification) bool) client.Notification {
	t.Helper()
	deadline := time.After(stepTimeout)
	var last string
	for {
		select {
		case n, ok := <-c.Notifications:
			if !ok {
				t.Fatalf("the stream ended before %s; the last was %s", what, last)
			}
			if fits(n) {
				return n
			}
			last = n.Method + " " + string(n.Params)
		case <-deadline:
			t.Fatalf("never received %s; the last was %s", what, last)
		}
	}
}

func rejected(n client.Notification) bool { return n.Method == geminiide.MethodDiffRejected }

// accepted waits until the CLI is notified that its change was accepted, and
// returns the accepted text.
func accepted(t *testing.T, c *client.CLI) string {
	t.Helper()
	n := received(t, c, "an accepted diff", func(n client.Notification) bool { return n.Method == geminiide.MethodDiffAccepted })
	var p geminiide.DiffAccepted
	if err := json.Unmarshal(n.Params, &p); err != nil {
		t.Fatal(err)
	}
	return p.Content
}

func wantAccepted(t *testing.T, c *client.CLI, want string) {
	t.Helper()
	if got := accepted(t, c); got != want {
		t.Errorf("accepted %q, want %q", got, want)
	}
}

// wantSaved waits as wantAccepted does and then writes the file, as the CLI does.
func wantSaved(t *testing.T, c *client.CLI, path, want string) {
	t.Helper()
	wantAccepted(t, c, want)
	systest.WriteFile(t, path, want)
}

// told waits until the companion sends matching open files.
func told(t *testing.T, c *client.CLI, what string, fits func(open []geminiide.File) bool) {
	t.Helper()
	received(t, c, what, func(n client.Notification) bool {
		var p geminiide.Context
		return n.Method == geminiide.MethodContextUpdate && json.Unmarshal(n.Params, &p) == nil && fits(p.WorkspaceState.OpenFiles)
	})
}

// hands are the keys that differ between editors.
type hands struct {
	// selectWord selects "one" from the start of the first line.
	selectWord []string
	// edit types "mine" and a line feed at the start of the proposal, from
	// inside the diff.
	edit []string
	// accepts and rejects are all ways to accept and to reject, from inside the
	// diff.
	accepts, rejects [][]string
	// quit exits the editor, even if changes wait.
	quit []string
	// save saves the buffer.
	save []string
	// change types "dirty" at the start of the file's buffer.
	change []string
	// down moves the cursor one line down.
	down []string
	// visit opens a file.
	visit func(name string) []string
	// close closes the current buffer.
	close []string
	// rename renames the buffer's file.
	rename func(name string) []string
	// scratch shows a buffer without a file.
	scratch []string
	// send asks a question about the first two lines.
	send func(question string) []string
	// copy saves the text of the proposal to another file.
	copy                           func(name string) []string
	undoHunk, acceptHunk, nextHunk []string
	previousHunk                   []string
	held                           []string // accepts
	// typing are commands that a diff interrupts, and the text on the screen
	// when they are done.
	typing []halves
}

type halves struct {
	begin, end []string
	seen       string
}

var vimHands = hands{
	selectWord: []string{"gg0ve"},
	edit:       []string{"ggOmine", "Escape"},
	accepts: [][]string{
		{":w", "Enter"}, {":wq", "Enter"}, {":x", "Enter"}, {"ZZ"}, {":Pollux accept", "Enter"},
	},
	rejects: [][]string{
		{":q!", "Enter"}, {"ZQ"}, {":bwipeout!", "Enter"}, {":bdelete!", "Enter"}, {":Pollux reject", "Enter"},
		{"C-w", "h", ":q", "Enter"}, {"C-w", "h", ":bwipeout", "Enter"}, {":enew!", "Enter"}, {"C-w", "j", ":only!", "Enter"},
	},
	quit:         []string{"Escape", ":qa!", "Enter"},
	save:         []string{":w", "Enter"},
	change:       []string{"ggOdirty", "Escape"},
	down:         []string{"j"},
	visit:        func(name string) []string { return []string{":edit " + name, "Enter"} },
	close:        []string{":bdelete", "Enter"},
	rename:       func(name string) []string { return []string{":saveas! " + name, "Enter"} },
	scratch:      []string{":help", "Enter"},
	send:         func(question string) []string { return []string{":1,2Pollux send " + question, "Enter"} },
	copy:         func(name string) []string { return []string{":w " + name, "Enter"} },
	undoHunk:     []string{"do"},
	acceptHunk:   []string{"dp"},
	nextHunk:     []string{"]c"},
	previousHunk: []string{"[c"},
	held:         []string{"Z", "Z"},
	typing: []halves{
		{[]string{":echo 12"}, []string{"3456", "Enter"}, "123456"},
		{[]string{"q:", "ilet g:seen = 12"}, []string{"3457", "Enter"}, ""},
		{[]string{"iab"}, []string{"cd", "Escape", ":echo getline(1)", "Enter"}, "abcd"},
		{[]string{"v"}, []string{"Escape"}, ""},
	},
}

var emacsHands = hands{
	selectWord: []string{"M-<", "C-Space", "M-f"},
	edit:       []string{"M-<", "mine", "Enter"},
	accepts:    [][]string{{"C-x", "C-s"}, {"C-c", "C-c"}, {"M-x", "pollux-accept", "Enter"}},
	rejects: [][]string{
		{"C-c", "C-k"}, {"M-x", "pollux-reject", "Enter"}, {"C-x", "k", "Enter"}, {"C-x", "o", "C-x", "o", "C-x", "k", "Enter"},
	},
	quit:    []string{"C-x", "C-c"},
	save:    []string{"C-x", "C-s"},
	change:  []string{"M-<", "dirty", "Enter"},
	down:    []string{"C-n"},
	visit:   func(name string) []string { return []string{"C-x", "C-f", name, "Enter"} },
	close:   []string{"C-x", "k", "Enter"},
	rename:  func(name string) []string { return []string{"C-x", "C-w", name, "Enter"} },
	scratch: []string{"C-x", "b", "*scratch*", "Enter"},
	send: func(question string) []string {
		return []string{"M-<", "C-Space", "C-n", "C-n", "M-x", "pollux-send", "Enter", question, "Enter"}
	},
	copy:         func(name string) []string { return []string{"C-x", "C-w", name, "Enter"} },
	undoHunk:     []string{"C-c", "C-u"},
	acceptHunk:   []string{"C-c", "C-a"},
	nextHunk:     []string{"C-c", "C-n"},
	previousHunk: []string{"C-c", "C-p"},
	held:         []string{"C-c", "C-c"},
	typing: []halves{
		{[]string{"M-:", `(message "12`}, []string{`3456")`, "Enter"}, "123456"},
		{[]string{"ab"}, []string{"cd"}, "abcd"},
	},
}

func handsOf(kind editortest.Kind) hands {
	if kind.Name == "emacs" {
		return emacsHands
	}
	return vimHands
}

// kindOf returns the kind of editor with a name.
func kindOf(name string) editortest.Kind {
	return editortest.Kinds[slices.IndexFunc(editortest.Kinds, func(k editortest.Kind) bool { return k.Name == name })]
}

// eachEditor runs a test with each editor, while other tests run.
func eachEditor(t *testing.T, test func(t *testing.T, kind editortest.Kind, h hands)) {
	t.Parallel()
	for _, kind := range editortest.Kinds {
		t.Run(kind.Name, func(t *testing.T) { test(t, kind, handsOf(kind)) })
	}
}

// eachVim runs a test with Vim and with Neovim, while other tests run.
func eachVim(t *testing.T, test func(t *testing.T, kind editortest.Kind)) {
	t.Parallel()
	for _, name := range []string{"nvim", "vim"} {
		t.Run(name, func(t *testing.T) { test(t, kindOf(name)) })
	}
}

// leaveTerminal moves the keys from the terminal to the editor.
func (d *desk) leaveTerminal(h hands) {
	d.t.Helper()
	if d.Name == "emacs" {
		d.press("C-c", "o") // in char mode the terminal receives C-x; C-c is the escape
		return
	}
	if d.Name == "nvim" {
		d.press("C-\\", "C-n")
		d.until("mode()", "n")
	}
	d.press("C-w", "t") // in its other mode Vim's terminal is not updated
	d.until("mode()", "n")
}

// idle starts an editor on a file and connects a client to its companion.
func idle(t *testing.T, kind editortest.Kind, text string) (d *desk, c *client.CLI, path string) {
	t.Helper()
	w := newWorld(t, silent)
	path = w.file("a.txt", text)
	d = w.sit(kind, path)
	return d, d.cli(), path
}

// waits starts an editor on a file and a client that has proposed a change to
// it. The diff is on the screen.
func waits(t *testing.T, kind editortest.Kind, before, proposed string) (d *desk, c *client.CLI, path string) {
	t.Helper()
	d, c, path = idle(t, kind, before)
	d.review(c, path, proposed)
	return d, c, path
}

// The CLI is notified of the right answer for every way to accept and every way
// to leave.
func TestEditorEveryWayOut(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "one\ntwo\n")
		d.settle(briefSettleDelay)
		first := true
		again := func() {
			t.Helper()
			if !first {
				d.review(c, path, "one\ntwo\n")
			}
			first = false
			d.enter()
		}
		for _, keys := range h.accepts {
			t.Logf("%q", keys)
			again()
			d.press(keys...)
			wantSaved(t, c, path, "one\ntwo\n")
			d.until(d.State.Shown, "")
		}
		for _, keys := range h.rejects {
			t.Logf("%q", keys)
			again()
			d.press(keys...)
			received(t, c, fmt.Sprintf("%q as a rejection", keys), rejected)
			d.until(d.State.Shown, "")
			d.see("rejected: ")
			if d.Name != "emacs" {
				d.press(":edit a.txt", "Enter")
			}
		}
	})
}

// Texts that editors tend to change are returned unchanged.
func TestEditorBytes(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, _ := idle(t, kind, "x\n")
		d.settle(briefSettleDelay)
		for i, text := range []string{
			"no final newline", "a\n", "a\r\nb\r\n", "a\r\nb", "mixed\r\nends\n", "\n", "\n\n", "  trailing \t\n",
			"\U0001F600 emoji é 中\n", "\ufeffmark\n", "tab\there\n", "ctrl\x01\x7f\n", "\r\n", "a\rb\n",
		} {
			path := d.file(fmt.Sprintf("f%d.txt", i), "old\n")
			if err := c.OpenDiff(d.context(), path, text); err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			d.shows(path)
			d.command("accept")
			wantSaved(t, c, path, text)
			d.until(d.State.Shown, "")
		}
		// A new file, and a file with many lines.
		path := filepath.Join(d.project, "new.txt")
		big := strings.Repeat("a line of text\n", 20000)
		d.review(c, path, big)
		d.command("accept")
		if got := accepted(t, c); got != big {
			t.Errorf("%d bytes came back as %d", len(big), len(got))
		}
	})
}

// In another encoding, Vim's JSON functions damage texts, and the damaged text became the
// user's. The plugin says what to do and starts no companion.
func TestVimEncoding(t *testing.T) {
	t.Parallel()
	t.Run("latin1", func(t *testing.T) {
		w := newWorld(t, silent)
		w.env = append(w.env, "LC_ALL=C")
		d := w.begin(kindOf("vim"), w.file("a.txt", "one\n"))
		d.see("add `set encoding=utf-8` to your vimrc")
		if pid := d.companion(); pid != 0 {
			t.Errorf("process %d was started", pid)
		}
	})
	t.Run("utf-8 in the vimrc", func(t *testing.T) {
		w := newWorld(t, silent)
		w.env = append(w.env, "LC_ALL=C")
		w.writeHome(".vim/vimrc", "set encoding=utf-8\n")
		path := w.file("a.txt", "one\n")
		d := w.sit(kindOf("vim"), path)
		c := d.cli()
		const text = "naïve → 日本\n"
		d.review(c, path, text)
		d.command("accept")
		wantSaved(t, c, path, text)
	})
	t.Run("changed while Pollux runs", func(t *testing.T) {
		d, c, _ := waits(t, kindOf("vim"), "one\n", "naïve\n")
		d.resize(90, 50)
		d.press(":set encoding=latin1", "Enter")
		d.see("Vim uses the encod...") // a longer text would ask for Enter
		d.see("to your vimrc and restart Vim")
		received(t, c, "a rejection", rejected)
		waitFor(t, "the companion to end", func() bool { return d.companion() == 0 })
	})
}

// The keys for hunks are the same everywhere.
func TestEditorHunks(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, _ := idle(t, kind, "")
		for _, view := range []struct {
			name  string
			width int
		}{{"wide.txt", 180}, {"inline.txt", 90}} { // columns
			t.Log(view.name)
			path := d.file(view.name, "a\nb\nc\nd\ne\n")
			d.resize(view.width, 50)
			d.review(c, path, "A\nb\nc\nd\nE\nf")
			d.enter()
			d.press(h.nextHunk...)
			d.until(d.State.Line, "5")
			d.press(h.previousHunk...)
			d.until(d.State.Line, "1")
			d.press(h.undoHunk...)
			d.holds(d.State.Proposal, "a\nb\nc\nd\nE\nf")
			d.press(h.nextHunk...)
			d.until(d.State.Line, "5")
			d.press(h.undoHunk...)
			d.holds(d.State.Proposal, "a\nb\nc\nd\ne\n")
			d.press(h.acceptHunk...)
			d.holds(d.State.Proposal, "a\nb\nc\nd\nE\nf")
			d.press(h.accepts[0]...)
			wantSaved(t, c, path, "a\nb\nc\nd\nE\nf")
			d.until(d.State.Shown, "")
		}
	})
}

// Many users of Vim leave Insert mode with Ctrl-C, and repeat it. Two in Normal mode
// accepted the change.
func TestVimCtrlC(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		d, c, path := waits(t, kind, "one\n", "one\ntwo\n")
		d.enter()
		if text := d.ask("execute('map <C-c>')"); strings.Contains(text, "Pollux") {
			t.Errorf("Ctrl-C waits for another key: %s", text)
		}
		d.press("gg", "i")
		d.until("mode()", "i")
		d.press("zz")
		d.holds(d.State.Proposal, "zzone\ntwo\n")
		if err := d.Hold(t.Context(), 3, 200*time.Millisecond, "C-c"); err != nil {
			t.Fatal(err)
		}
		d.until("mode()", "n")
		d.press(":let g:done = 1", "Enter") // after the others
		d.until("get(g:, 'done')", "1")
		d.undecided(c, path, "zzone\ntwo\n")
	})
}

// removedColors evaluates to the colours of removed lines in Vim and Neovim.
const removedColors = `['fg', 'bg']->map({_, what -> synIDattr(synIDtrans(hlID('PolluxDelete')), what, 'gui')})->join(' on ')`

// In an inline view, the removed lines are on the screen, also above the first line and
// after the user has scrolled away and back. Their colours are readable.
func TestEditorInline(t *testing.T) {
	rest := strings.Repeat("rest\n", 200)
	texts := []struct{ name, before, proposed string }{
		{"first line", "taken away\n" + rest, "new\n" + rest},
		{"only removed", "more\ntaken away\n" + rest, rest},
		{"second line", "first\ntaken away\n" + rest, "first\nnew\n" + rest},
		{"everything", "more\ntaken away\n", "new\n"},
	}
	bottom, top := []string{"G"}, []string{"gg"}
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		if kind.Name == "emacs" {
			bottom, top = []string{"M->"}, []string{"M-<"}
		}
		for _, text := range texts {
			t.Run(text.name, func(t *testing.T) {
				d, c, path := idle(t, kind, text.before)
				d.resize(90, 50)
				d.review(c, path, text.proposed)
				both := func() bool { return strings.Count(d.Text(), "taken away") == 2 }
				waitFor(t, "the removed line in the view and in the file", both)
				d.enter()
				for _, sign := range []string{"- taken away", "+ new"} {
					if kind.Name != "emacs" && (strings.HasPrefix(sign, "-") || strings.Contains(text.proposed, "new")) {
						d.see(sign)
					}
				}
				d.press(bottom...)
				if text.name != "everything" {
					waitFor(t, "the view to scroll", func() bool { return !both() })
				}
				d.press(top...)
				waitFor(t, "the removed line after scrolling", both)
				if kind.Name != "emacs" && strings.HasPrefix(d.ask(removedColors), "Blue on ") {
					t.Error("removed lines have the stock colours of DiffDelete, which cannot be read")
				}
			})
		}
	})
}

// The file has changed on disk. An inline view has no left side that could show it, so the
// comparison opens a window.
func TestVimComparesInline(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		d, c, path := idle(t, kind, "one\ntwo\n")
		d.resize(90, 50)
		d.review(c, path, "one\nproposed\n")
		d.enter()
		systest.WriteFile(t, path, "one\ntwo\nfrom the disk\n")
		d.press(":", "w", "Enter")
		d.see("(C)ompare")
		d.press("c")
		d.see("on disk: a.txt")
		d.see("from the disk")
		d.holds(d.State.Proposal, "one\nproposed\n")
		d.press(":", "q", "!", "Enter")
		d.until(d.State.Shown, "")
		d.until("winnr('$')", "1")
	})
}

// The file has changed on disk. After the user has compared it with the proposal, the next
// decision overwrites it without a question, unless it has changed again.
func TestEditorCompares(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "proposed\n")
		d.enter()
		for _, text := range []string{"from another program\n", "from it again\n"} {
			systest.WriteFile(t, path, text)
			d.press(h.accepts[0]...)
			d.see("ompare with it")
			d.press("c")
			d.see(strings.TrimSpace(text))
			d.see("overwrites the file")
			d.shows(path)
		}
		d.press(h.accepts[0]...)
		wantAccepted(t, c, "proposed\n")
	})
}

// What happens while Vim asks about a conflict does not hide the question: Vim waits for the
// answer and takes no other key.
func TestVimQuestionStaysInView(t *testing.T) {
	d, _, _ := waits(t, kindOf("vim"), "one\n", "proposed\n")
	d.enter()
	other := d.file("b.txt", "b\n")
	d.ask(fmt.Sprintf("bufload(bufadd('%s'))", other))
	d.until("mode()", "n")
	d.file("a.txt", "from another program\n")
	d.press(":w", "Enter")
	d.see("ompare with it")
	d.ask("pollux#client#Say('a message')")
	d.ask(fmt.Sprintf("pollux#diff#Reload('%s')", other))
	d.see("ompare with it")
	d.press("c")
	d.see("from another program")
	d.see("a message")
}

// The user goes from Vim's terminal to the diff by a command. Vim does not wait for Enter
// afterwards.
func TestVimLeavesItsTerminal(t *testing.T) {
	d, c, path := idle(t, kindOf("vim"), "one\n")
	d.ask(`len(extend(g:, {'pollux': {'cli': ['cat']}}))`)
	d.command("open")
	d.until(d.State.Terminal, "1")
	d.review(c, path, "two\n")
	d.press("C-w")
	d.enter()
	d.until("mode()", "n")
}

// Unsaved changes are shown. Neither an accepted change nor reloading the file
// discards them.
func TestEditorDirtyBuffer(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := idle(t, kind, "one\n")
		d.press(h.change...)
		d.review(c, path, "two\n")
		d.see("dirty")
		d.command("accept")
		wantSaved(t, c, path, "two\n")
		d.see("unsaved changes are kept")
		d.holds(d.State.Buffer("a.txt"), "dirty\none\n")
		d.wantFile(path, "two\n")
	})
}

// The user has opened a file that does not exist yet, in a directory that does not either. The buffer
// gets the text that the agent writes: Vim's stayed empty, and Neovim asked.
func TestEditorNewFile(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, _ := idle(t, kind, "one\n")
		path := filepath.Join(d.project, "new", "b.txt")
		d.press(h.visit(path)...)
		d.holds(d.State.Buffer(filepath.Base(path)), "")
		d.review(c, path, "one\ntwo\n")
		d.command("accept")
		systest.MakeDir(t, filepath.Dir(path))
		wantSaved(t, c, path, "one\ntwo\n")
		d.holds(d.State.Buffer(filepath.Base(path)), "one\ntwo\n")
		d.press(h.change...)
		d.press(h.save...)
		waitFor(t, "the file", func() bool { return strings.HasPrefix(systest.ReadFile(t, path), "dirty\n") })
	})
}

// What the user saves in an editor is not a change outside Pollux. What another program
// writes is: the list of changes has it, and the user takes one hunk of it back.
func TestEditorOutside(t *testing.T) {
	choose := map[string][]string{"nvim": {"1", "Enter"}, "vim": {"Enter"}, "emacs": {"other.txt", "Enter"}}
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		mine, other := w.file("mine.txt", "one\n"), w.file("other.txt", "a\nb\nc\nd\ne\n")
		w.repository() // which knows the earlier texts, however soon the files change
		d := w.sit(kind, other, mine)
		d.press(h.visit(mine)...)
		d.cli()
		d.press(h.change...)
		d.press(h.save...)
		w.wantOutside(mine, "dirty\n", other, "A\nb\nc\nd\nE\n")
		d.command("status")
		d.answers("1 file changed outside Pollux")
		d.command("list")
		d.see("Review")
		d.press(choose[kind.Name]...)
		d.shows(other)
		d.see("changed outside Pollux: other.txt")
		d.until(d.State.Inside, "1")
		d.press(h.undoHunk...)
		d.holds(d.State.Proposal, "a\nb\nc\nd\nE\n")
		d.press(h.accepts[0]...)
		d.until(d.State.Shown, "")
		w.wantFile(other, "a\nb\nc\nd\nE\n")
		if status := w.pollux("status"); strings.Contains(status, "outside Pollux") {
			t.Errorf("after that, the status is %s", status)
		}
	})
}

// A change that arrives while the user types a command waits until the command
// is done, and does not take its keys.
func TestEditorDiffWhileTyping(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := idle(t, kind, "one\n")
		for _, typing := range h.typing {
			d.press(typing.begin...)
			d.propose(c, path, "two\n")
			d.until(d.State.Waiting, "1")
			d.press(typing.end...)
			d.shows(path)
			d.see("a.txt (") // the title
			d.see(typing.seen)
			d.command("reject")
			received(t, c, "a rejection", rejected)
			d.until(d.State.Shown, "")
		}
	})
}

// Several changes wait. The editor shows one, counts the others and shows them
// afterwards.
func TestEditorSeveralDiffs(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "two\n")
		other := d.file("b.txt", "b\n")
		c2 := d.cli()
		d.propose(c2, other, "B\n")
		d.until(d.State.Waiting, "2")
		d.shows(path)
		d.enter()
		d.press(h.edit...)
		d.command("next") // from inside the diff: the one that waits
		d.shows(other)
		d.command("reject")
		received(t, c2, "a rejection", rejected)
		d.shows(path) // with the edits made so far
		d.command("accept")
		wantAccepted(t, c, "mine\ntwo\n")
		d.until(d.State.Waiting, "0")
	})
}

// companion returns the PID of the editor's companion, or 0.
func (d *desk) companion() int {
	for _, pid := range children(d.t, d.PID) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) == "pollux" {
			return pid
		}
	}
	return 0
}

// crash kills the companion, and waits until the editor has started another one.
func (d *desk) crash() {
	d.t.Helper()
	old := d.companion()
	send(d.t, old, syscall.SIGKILL)
	d.restarts(old)
}

// restarts waits until the editor has started a companion other than the old one.
func (d *desk) restarts(old int) {
	d.t.Helper()
	waitFor(d.t, "a new one", func() bool { pid := d.companion(); return pid != 0 && pid != old })
	d.until(d.State.Started, "1")
}

// later waits until a timer of the editor has run that starts now.
func (d *desk) later(ms int) {
	d.t.Helper()
	if d.Name == "emacs" {
		d.ask(fmt.Sprintf("(progn (setq px-later 0) (run-at-time %g nil (lambda () (setq px-later 1))) 0)", float64(ms)/1000))
		d.until("px-later", "1")
		return
	}
	d.ask(fmt.Sprintf("len(extend(g:, {'later': 0})) + timer_start(%d, {-> extend(g:, {'later': 1})})", ms))
	d.until("g:later", "1")
}

// The companion crashes. It restarts with the same port and token, so that CLIs can connect
// again. It keeps crashing, and the user stops Pollux in the pause before the next start. It
// started nevertheless.
func TestEditorStopsARestart(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, _ hands) {
		d, _, _ := idle(t, kind, "one\n")
		port, token := d.ask(d.State.Port), d.ask(d.State.Token)
		for range 3 {
			d.crash()
			if p, k := d.ask(d.State.Port), d.ask(d.State.Token); p != port || k != token {
				t.Errorf("back on port %s, was %s; same token: %v", p, port, k == token)
			}
			d.cli()
		}
		send(t, d.companion(), syscall.SIGKILL)
		d.until(d.State.Started, "0")
		d.command("stop")
		d.later(4500) // the pause is 4 s
		if pid := d.companion(); pid != 0 {
			t.Errorf("process %d was started", pid)
		}
	})
}

// The working directory changes while Pollux starts, as a session or a rooter plugin does
// it. The companion kept the old workspace.
func TestEditorChangesDirectoryAtStart(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		w := newWorld(t, silent)
		other := filepath.Join(w.project, "other")
		systest.MakeDir(t, other)
		d := w.sit(kind, w.file("a.txt", "one\n"))
		d.command("stop")
		d.until(d.State.Started, "0")
		d.ask("execute(['Pollux start', 'cd other'])")
		d.until(d.State.Started, "1")
		waitFor(t, "the new workspace", func() bool { return strings.Contains(w.pollux("status"), other) })
	})
}

// Saving a copy of the text decides nothing. After the companion was killed,
// the user can still save the edited text.
func TestEditorSavesACopy(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "two\n")
		d.enter()
		d.press(h.edit...)
		copied := filepath.Join(d.project, "copy.txt")
		d.press(h.copy(copied)...)
		holds := func(path string) func() bool {
			return func() bool {
				data, _ := os.ReadFile(path)
				return string(data) == "mine\ntwo\n"
			}
		}
		waitFor(t, "the copy", holds(copied))
		if got := d.ask(d.State.Waiting); got != "1" {
			t.Errorf("%s diffs wait after a copy", got)
		}
		d.command("reject")
		received(t, c, "a rejection", rejected)
		d.until(d.State.Shown, "")
		d.wantFile(path, "one\n")

		d.review(c, path, "two\n")
		d.enter()
		d.press(h.edit...)
		d.crash()
		d.press(h.accepts[0]...)
		d.see("companion of this change has ended") // wait for the message: Emacs drops keys that were typed before it
		lost := filepath.Join(d.project, "lost.txt")
		d.press(h.copy(lost)...)
		waitFor(t, "the lost text", holds(lost))
		d.wantFile(path, "one\n")
	})
}

// The user decides after Pollux was killed, and before the editor has noticed: the plugin
// cannot write its request. In Vim the user had to press Enter at Vim's own error, and later
// messages of the plugin did not appear.
func TestEditorDecidesAfterACrash(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, _ hands) {
		run, errors := ":let v:errmsg = '' | call system('%s') | Pollux %s", "v:errmsg =~# '^E'"
		d, _, path := idle(t, kind, "one\n")
		if kind.Name == "emacs" {
			run = `(progn (call-process "sh" nil nil nil "-c" "%s") (pollux-%s))`
			errors = `(with-current-buffer "*Messages*" (if (string-match-p "Process pollux not running" (buffer-string)) 1 0))`
			d.ask("(progn (setq eval-expression-debug-on-error nil) 0)")
		}
		for _, command := range []string{"reject", "accept"} {
			d.review(d.cli(), path, "two\n")
			d.enter()
			old := d.companion()
			kill := fmt.Sprintf("kill -9 %[1]d; until grep -q ^State:.Z /proc/%[1]d/status || ! test -e /proc/%[1]d; do :; done", old)
			if kind.Name == "emacs" {
				d.press("M-:")
			}
			d.press(fmt.Sprintf(run, kill, command), "Enter")
			d.restarts(old)
			d.until(errors, "0")
		}
	})
}

// :saveas in a proposal saves a copy too: afterwards, :w still accepts.
func TestVimSavesAs(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		d, c, _ := waits(t, kind, "one\n", "two\n")
		d.enter()
		copied := filepath.Join(d.project, "copy.txt")
		d.press(":saveas "+copied, "Enter")
		d.see("saved a copy")
		d.wantFile(copied, "two\n")
		d.press(":w", "Enter")
		wantAccepted(t, c, "two\n")
	})
}

// A user's autocommand can have a pattern for several events. One that fails decides nothing.
func TestVimEvents(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		d, c, path := idle(t, kind, "one\n")
		d.press(":let g:event = ''", "Enter")
		d.press(":autocmd User Pollux* let g:event = expand('<amatch>')", "Enter")
		d.press(":autocmd User PolluxDiff* call Missing()", "Enter")
		d.propose(c, path, "two\n")
		d.see("pollux: an autocommand")
		d.shows(path)
		d.until("g:event", "PolluxDiffReady")
		d.enter()
		d.press(":w", "Enter")
		wantAccepted(t, c, "two\n")
	})
}

// Saving automatically, or saving something else, accepts nothing. Making the
// proposal larger or changing its mode does not close it.
func TestEditorDecidesOnlyWhenAsked(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "one\ntwo\n")
		still := func(what string) {
			t.Helper()
			if got := d.ask(d.State.Waiting); got != "1" {
				t.Errorf("%s: %s diffs wait", what, got)
			}
			d.shows(path)
		}
		if d.Name == "emacs" {
			d.press("C-x", "s", "C-x", "1")
			d.command("accept") // out of sight, so it is shown first
			d.see("Look at it first")
			still("accept of what is hidden")
			d.enter()
			d.press("M-x", "python-mode", "Enter")
			d.see("(Python")
			d.see("C-c C-k rejects")
			d.press("C-x", "k", "Enter")
		} else {
			d.press(":wa", "Enter")
			still(":wa elsewhere")
			d.enter()
			d.press(":wa", "Enter")
			d.see("Accept the change to a.txt?")
			d.press("n")
			still(":wa")
			d.press(":set autowrite", "Enter", ":!true", "Enter")
			d.see("Accept the change to a.txt?")
			d.press("n")
			d.see("Press ENTER")
			d.press("Enter", ":set noautowrite", "Enter")
			still("autowrite")
			d.press(":only", "Enter")
			still(":only")
			d.press(":split a.txt", "Enter")
			d.enter()
			d.press(":q!", "Enter")
		}
		received(t, c, "a rejection", rejected)
		d.until(d.State.Shown, "")
	})
}

// In a narrow terminal the title of a proposal has the name of the file and all the keys. Beside
// a long name they are brief: the title was "<" and the keys. An
// accepted change is confirmed in one line, also if the next one comes with a message. The
// keys were out of sight, and nothing was said.
func TestEditorNarrow(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		keys, brief := "/file.txt (:w accepts, :q! rejects)", " (:w/:q!)"
		if kind.Name == "emacs" {
			keys, brief = "/file.txt (C-c C-c accepts, C-c C-k rejects)", " (C-c C-c/C-k)"
		}
		w := newWorld(t, silent)
		dirty := w.file("dirty.txt", "one\n")
		path := filepath.Join(w.project, "a_long_name_of_a_directory/and_of_another_one_in_it/file.txt")
		systest.MakeDir(t, filepath.Dir(path))
		d := w.sit(kind, dirty)
		d.press(h.change...)
		c := d.cli()
		for _, width := range []int{180, 80, 60} {
			d.resize(width, 24)
			d.review(c, path, fmt.Sprintln(width))
			d.see(keys)
			if width == 180 {
				d.see("Gemini CLI proposes: ")
			}
			d.enter()
			d.press(h.accepts[0]...)
			wantSaved(t, c, path, fmt.Sprintln(width))
			d.see("accepted: file.txt")
			d.until(d.State.Shown, "")
		}
		for _, name := range []string{"the_name_of_a_file_can_also_be_long.txt", strings.Repeat("\u4e8c", 18) + ".txt"} {
			long := filepath.Join(filepath.Dir(path), name)
			d.review(c, long, "one\n")
			d.see(name + brief)
			d.command("reject")
			received(t, c, "a rejection", rejected)
			d.until(d.State.Shown, "")
		}
		d.review(c, path, "two\n")
		c2 := d.cli()
		d.propose(c2, dirty, "two\n")
		d.until(d.State.Waiting, "2")
		d.command("accept")
		wantSaved(t, c, path, "two\n")
		d.shows(dirty)
		d.see("unsaved changes: they are kept")
		d.command("reject") // without an Enter before it
		received(t, c2, "a rejection", rejected)
	})
}

// settleDelay is the time in milliseconds before a user can decide. With
// longSettleDelay a test can press keys too early even on a busy machine. With
// briefSettleDelay a test of many changes takes seconds less.
const (
	settleDelay      = 500
	longSettleDelay  = 20_000
	briefSettleDelay = 20
)

// appeared is the message about a decision that comes too early.
const appeared = "This change has just appeared. Look at it, then decide."

// undecided checks that nothing was decided so far, and that the user can
// decide now.
func (d *desk) undecided(c *client.CLI, path, text string) {
	d.t.Helper()
	if got := d.ask(d.State.Waiting); got != "1" {
		d.t.Fatalf("%s diffs wait", got)
	}
	d.settle(settleDelay)
	d.command("next")
	d.shows(path)
	d.command("accept")
	wantAccepted(d.t, c, text) // the first answer
	d.until(d.State.Shown, "")
}

// A surprise changes what is in view while the user reads a change.
type surprise struct {
	// replace returns the path of the change that is then in view.
	replace func(d *desk, c *client.CLI, path string) (string, error)
	text    string // then in the proposal
	accept  func(d *desk, h hands)
}

// tooEarly checks that a decision right after a surprise does not count.
func (s surprise) tooEarly(t *testing.T, kind editortest.Kind, h hands) {
	d, c, path := waits(t, kind, "one\n", "two\n")
	if got := d.ask(d.State.Settle); got != strconv.Itoa(settleDelay) {
		t.Errorf("the user can decide after %s ms", got)
	}
	d.see(" accepts")
	d.enter()
	d.settle(longSettleDelay)
	path, err := s.replace(d, c, path)
	if err != nil {
		t.Fatal(err)
	}
	d.holds(d.State.Proposal, s.text)
	d.until(d.State.Shown, path)
	s.accept(d, h)
	d.see(appeared)
	d.undecided(c, path, s.text)
}

func acceptByKey(d *desk, h hands)     { d.press(h.accepts[0]...) }
func acceptByCommand(d *desk, _ hands) { d.command("accept") }

// Another change replaced the one that the user was reading. Keys meant for the
// first one accepted a change that the user had not seen.
func TestEditorKeyMeantForAnother(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		for name, s := range map[string]surprise{
			"superseded": {func(d *desk, c *client.CLI, path string) (string, error) {
				return path, c.OpenDiff(d.context(), path, "three\n")
			}, "three\n", acceptByKey},
			"answered in the terminal": {func(d *desk, c *client.CLI, path string) (string, error) {
				next := d.file("b.txt", "b\n")
				if err := c.OpenDiff(d.context(), next, "three\n"); err != nil {
					return "", err
				}
				d.until(d.State.Waiting, "2")
				_, err := c.CloseDiff(d.context(), path)
				return next, err
			}, "three\n", acceptByCommand},
		} {
			t.Run(name, func(t *testing.T) { s.tooEarly(t, kind, h) })
		}
	})
}

// No way to accept, to reject or to leave decides on a change that has just
// appeared. A command shows a closed view again.
func TestEditorTooEarly(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "one\ntwo\n")
		d.settle(longSettleDelay)
		d.propose(c, path, "one\nthree\n")
		d.holds(d.State.Proposal, "one\nthree\n")
		for _, keys := range slices.Concat(h.accepts, h.rejects) {
			t.Logf("%q", keys)
			d.command("next")
			d.until(d.State.Inside, "1")
			d.press(keys...)
			if d.Name == "emacs" {
				d.answers(appeared, "still pending")
			} else {
				d.press(":edit a.txt", "Enter")
			}
			d.until(d.State.Waiting, "1")
		}
		d.command("next")
		d.until(d.State.Inside, "1")
		d.press(h.rejects[2]...) // closes the view
		d.see("still pending")
		d.until(d.State.Shown, "")
		d.undecided(c, path, "one\nthree\n")
	})
}

// A key that the user holds down while a change is in view decides nothing,
// however long it is held.
func TestEditorHeldKey(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := idle(t, kind, "one\n")
		d.settle(4000)
		d.propose(c, path, "two\n")
		d.until(d.State.Shown, path)
		d.enter()
		if err := d.Hold(t.Context(), 50, 100*time.Millisecond, h.held...); err != nil {
			t.Fatal(err)
		}
		d.see(appeared)
		d.undecided(c, path, "two\n")
	})
}

// The CLI replaces its proposal while the user types in the old one. The keys go into the new
// proposal or nowhere, and never into the file. They restart the delay too, so that a key meant
// for the old text does not decide on the new one.
func TestEditorTypesOn(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "two\n")
		d.enter()
		if d.Name != "emacs" {
			d.press("i")
		}
		d.press("abc")
		d.holds(d.State.Proposal, "abctwo\n")
		const delay = 4000 // ms
		d.settle(delay)
		d.propose(c, path, "three\n")
		d.holds(d.State.Proposal, "three\n")
		d.until(d.State.Inside, "1")
		d.holds(d.State.Buffer("a.txt"), "one\n")
		if d.Name != "emacs" {
			d.press("Escape") // the new proposal is in insert mode too
			d.until("mode()", "n")
		}
		if err := d.Hold(t.Context(), delay/100+10, 100*time.Millisecond, "Right", "Left"); err != nil {
			t.Fatal(err)
		}
		if got := d.ask(d.State.Ready); got != "" {
			t.Errorf("the user can decide on %s while typing", got)
		}
		d.undecided(c, path, "three\n")
	})
}

// The user looks at something else right after a change has appeared, and comes back. The
// delay never ended.
func TestEmacsComesBack(t *testing.T) {
	d, c, path := idle(t, kindOf("emacs"), "one\n")
	d.settle(2000)
	d.propose(c, path, "two\n")
	d.until(d.State.Shown, path)
	d.ask("(progn (setq px-windows (current-window-configuration)) (switch-to-buffer \"*scratch*\") (delete-other-windows) 0)")
	d.later(1000)
	d.ask("(progn (set-window-configuration px-windows) 0)")
	d.shows(path)
}

// The companion ends right after a change has appeared. The text above the proposal says
// so, also when the delay is over.
func TestEmacsSaysThatPolluxHasEnded(t *testing.T) {
	d, c, path := idle(t, kindOf("emacs"), "one\n")
	d.settle(2000)
	d.propose(c, path, "two\n")
	d.until(d.State.Shown, path)
	send(t, d.companion(), syscall.SIGKILL)
	d.see("the companion has ended")
	d.later(3000)
	d.see("the companion has ended")
}

// The window is too small for a change. The change waits, the user reads how to
// show it, and the CLI gets no error, which it would print as a critical one.
func TestEditorNoRoom(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := idle(t, kind, "one\n")
		tall := d.ask(d.State.Lines)
		d.resize(180, 4)
		d.until(d.State.Lines, "4")
		if err := c.OpenDiff(d.context(), path, "two\n"); err != nil {
			t.Fatalf("the CLI got an error: %v", err)
		}
		d.see("a.txt is pending")
		d.until(d.State.Waiting, "1")
		d.until(d.State.Shown, "")
		d.resize(180, 50)
		d.until(d.State.Lines, tall)
		d.undecided(c, path, "two\n")
	})
}

// Another client replaces the text in view.
func TestEditorTextFromOutside(t *testing.T) {
	eachEditor(t, surprise{func(d *desk, c *client.CLI, path string) (string, error) {
		d.ask(d.State.Changed("content", "theirs"))
		return path, nil
	}, "theirs", acceptByKey}.tooEarly)
}

// Another client has accepted the change, and the CLI has not written the file
// yet. There is nothing to decide, and the view does not say that the file was
// written.
func TestEditorAcceptedElsewhere(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "two\n")
		d.enter()
		d.ask(d.State.Changed("state", "accepted"))
		d.see("a.txt: accepted; waiting for the agent to write the file")
		for _, name := range []string{"accept", "reject"} {
			d.command(name)
			d.answers("a.txt is accepted; waiting for the agent to write the file")
		}
		d.press(h.rejects[2]...) // closes the view
		d.until(d.State.Shown, "")
		d.ask(d.State.Changed("state", "open")) // so that undecided can check the first answer
		d.undecided(c, path, "two\n")
	})
}

// A command applies to the change that was in view when the user began to type
// it.
func TestEditorCommandBegunTooEarly(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		d, c, path := waits(t, kind, "one\n", "two\n")
		other := d.file("b.txt", "b\n")
		d.propose(c, other, "three\n")
		d.until(d.State.Waiting, "2")
		begin := d.Command("accept")
		d.press(begin[:len(begin)-1]...) // all but Enter
		if _, err := c.CloseDiff(d.context(), path); err != nil {
			t.Fatal(err)
		}
		if d.Name == "emacs" {
			d.until(d.State.Waiting, "1") // shown when the minibuffer closes
		} else {
			d.shows(other)
		}
		d.press("Enter")
		d.see("Look at it")
		d.undecided(c, other, "three\n")
	})
}

// The plugin reports a program that is missing, too old or broken since the plugin was
// installed.
func TestEditorWithoutPollux(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		for name, test := range map[string]struct{ script, says string }{
			"missing": {"", "is not installed, or not on the PATH"},
			"too old": {"echo 'unknown flag' >&2\nexit 2", "is too old"},
			"broken":  {"exit 3", "Pollux keeps exiting"},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, silent)
				path := w.file("a.txt", "one\n")
				dir := systest.ShortDir(t)
				own := filepath.Join(dir, "bin")
				systest.MakeDir(t, own)
				program := filepath.Join(own, "pollux")
				systest.Link(t, polluxBinary, program)
				w.env = append(w.env, "PATH="+own+":"+bareOf(os.Getenv("PATH")))
				w.pollux("install", kind.Name, "--yes")
				systest.Remove(t, program)
				if test.script != "" {
					agenttest.WriteProgram(t, own, "pollux", test.script, "")
				}
				d := w.open(kind, dir, path)
				d.see(test.says)
			})
		}
	})
}

// bareOf returns a PATH without the directories that contain a pollux.
func bareOf(path string) string {
	return strings.Join(slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "pollux"))
		return err == nil
	}), ":")
}

// do calls a function of the plugin in Vim or Neovim with one argument.
func (d *desk) do(function string, argument any) {
	d.t.Helper()
	d.ask(fmt.Sprintf(`len(extend(g:, {'argument': json_decode('%s')}))`, toJSON(d.t, argument)))
	d.ask(fmt.Sprintf(`execute('call %s(g:argument)')`, function))
}

// fakeCoc is a vimrc with a stand-in for coc.nvim.
const fakeCoc = `
	let g:coc_service_initialized = 1
	let g:coc_list = []
	function! CocActionAsync(name, Callback)
		call a:Callback(v:null, g:coc_list)
	endfunction
`

// finds makes Neovim, or coc.nvim in Vim, find a problem in a file.
func (d *desk) finds(path string) {
	d.t.Helper()
	if d.Name == "nvim" {
		d.ask(fmt.Sprintf(`luaeval('(function()
			vim.diagnostic.set(vim.api.nvim_create_namespace("test"), vim.fn.bufadd(_A), {{lnum = 0, col = 0, message = "bad"}})
			return 1 end)()', '%s')`, path))
		return
	}
	d.ask(fmt.Sprintf(`len(extend(g:, {'coc_list': json_decode('%s')}))`, toJSON(d.t, []any{map[string]any{
		"file": path, "severity": "Error", "message": "bad", "location": map[string]any{"range": map[string]any{
			"start": map[string]int{"line": 0, "character": 0}, "end": map[string]int{"line": 0, "character": 3},
		}},
	}})))
	d.ask(`execute('doautocmd <nomodeline> User CocDiagnosticChange')`)
}

// wantProblem checks that the plugin reports one problem about the file at a path.
func (d *desk) wantProblem(path string) {
	d.t.Helper()
	report := `json_encode(pollux#Host('diagnostics#Report', '` + path + `'))`
	var r editor.DiagnosticsResult
	if err := json.Unmarshal([]byte(d.ask(report)), &r); err != nil {
		d.t.Fatal(err)
	}
	if len(r.Files) != 1 || len(r.Files[0].Diagnostics) != 1 {
		d.t.Errorf("the diagnostics of %s are %+v", path, r)
	}
}

// On Windows coc.nvim writes the drive of a path in lower case. A file with errors was
// reported as one without.
func TestVimCocOtherCase(t *testing.T) {
	w := newWorld(t, silent)
	w.writeHome(".vim/vimrc", fakeCoc+"set fileignorecase\n")
	path := w.file("a.txt", "one\n")
	d := w.sit(kindOf("vim"), path)
	d.finds(filepath.Join(w.project, "A.TXT"))
	d.wantProblem(path)
}

// An agent writes the path of an open file in another way: the system ignores case, the
// path has a link, or its characters mean something in patterns. The plugins did not find
// the buffer: they showed no unsaved changes, and the diff beside another file; they kept
// the old text, and reported no diagnostics.
func TestEditorOtherNames(t *testing.T) {
	t.Parallel()
	const special = "a[1]{b}* ?.txt"
	for _, name := range []string{"nvim", "vim"} {
		for what, test := range map[string]struct{ open, asked, before string }{
			"another case":       {"a.txt", "A.TXT", "set fileignorecase"},
			"special characters": {special, special, ""},
			"part of a name":     {"a.txt", "a.txt", "edit a.txt.txt | edit b.txt"},
			"a link":             {"link.txt", "link.txt", ""},
			"a link's target":    {"link.txt", "a.txt", ""},
			"a linked directory": {"link/a.txt", "link/a.txt", ""},
			"through a link":     {"a.txt", "link/a.txt", ""},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				w := newWorld(t, silent)
				w.writeHome(".vim/vimrc", fakeCoc)
				for _, file := range []string{"a.txt", "a.txt.txt", special} {
					w.file(file, "one\n")
				}
				for link, target := range map[string]string{"link": w.project, "link.txt": "a.txt"} {
					systest.Link(t, target, filepath.Join(w.project, link))
				}
				d := w.sit(kindOf(name), w.file("b.txt", "b\n"))
				d.press(":"+test.before, "Enter")
				open, asked := filepath.Join(w.project, test.open), filepath.Join(w.project, test.asked)
				d.press(":execute 'belowright split' fnameescape('"+open+"')", "Enter", "ggOdirty", "Escape")
				d.until("mode() .. getline(1) .. bufname()->fnamemodify(':t')", "ndirty"+filepath.Base(open))

				d.do("pollux#diff#Open", map[string]any{
					"id": "1", "path": asked, "original": "one\n", "proposed": "two\n", "exists": true, "state": "pending",
				})
				windows := d.ask(`range(1, winnr('$'))->map({_, w -> winbufnr(w)->bufname()->fnamemodify(':t')})->join(' | ')`)
				if want := strings.Join([]string{
					"b.txt", filepath.Base(asked), filepath.Base(asked), filepath.Base(open), filepath.Base(open),
				}, " | "); windows != want {
					t.Errorf("the windows are %s, want %s", windows, want)
				}

				d.do("pollux#diff#Reload", asked)
				d.see("unsaved changes are kept")
				d.ask(`len([setbufvar(bufadd('` + open + `'), '&modified', 0)])`)
				target, err := filepath.EvalSymlinks(open)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(w.file("new.txt", "written\n"), target); err != nil { // as agents do
					t.Fatal(err)
				}
				d.do("pollux#diff#Reload", asked)
				d.holds(`json_encode({'text': getbufline(bufadd('`+open+`'), 1, '$')->join("\n")})`, "written\n")

				d.finds(open)
				d.wantProblem(asked)
			})
		}
	}
}

// The open files that the CLI receives follow what the user does.
func TestEditorFollowsFiles(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		a, b := w.file("a.txt", "one\n\U0001F600x\nthree\n"), w.file("b.txt", "b\n")
		d := w.sit(kind, a)
		c := d.cli()
		active := func(path string, line, char int, more func([]geminiide.File) bool) func([]geminiide.File) bool {
			return func(open []geminiide.File) bool {
				return len(open) > 0 && open[0].IsActive && open[0].Path == path &&
					(line == 0 || open[0].Cursor != nil && *open[0].Cursor == editor.Cursor{Line: line, Character: char}) && (more == nil || more(open))
			}
		}
		paths := func(want ...string) func([]geminiide.File) bool {
			return func(open []geminiide.File) bool {
				var got []string
				for _, f := range open {
					got = append(got, f.Path)
				}
				slices.Sort(got)
				slices.Sort(want)
				return slices.Equal(got, want)
			}
		}
		told(t, c, "the file", active(a, 1, 1, paths(a)))
		d.press(h.down...)
		told(t, c, "the second line", active(a, 2, 1, nil))
		d.press(map[bool]string{true: "C-f", false: "l"}[d.Name == "emacs"])
		told(t, c, "the column after an emoji", active(a, 2, 3, nil))
		d.press(h.visit(b)...)
		told(t, c, "the other file", active(b, 1, 1, paths(a, b)))
		d.press(h.rename("c.txt")...)
		renamed := filepath.Join(w.project, "c.txt")
		told(t, c, "the new name", func(open []geminiide.File) bool {
			return slices.ContainsFunc(open, func(f geminiide.File) bool { return f.Path == renamed && f.IsActive })
		})
		d.press(h.close...)
		told(t, c, "that it is closed", func(open []geminiide.File) bool {
			return !slices.ContainsFunc(open, func(f geminiide.File) bool { return f.Path == renamed })
		})
		d.press(h.visit(a)...)
		d.press(h.scratch...)
		systest.Remove(t, a)
		d.press(h.visit(renamed)...)
		told(t, c, "that the deleted one is gone", func(open []geminiide.File) bool {
			return !slices.ContainsFunc(open, func(f geminiide.File) bool { return f.Path == a || strings.Contains(f.Path, "help") })
		})
	})
}

// The editor exits, in each possible way, while a diff is open. The CLI is
// notified, nothing is left behind, and the journal has the text.
func TestEditorEnds(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		for _, end := range []string{"quit", "SIGHUP", "SIGTERM", "SIGKILL"} {
			t.Run(end, func(t *testing.T) {
				d, c, _ := waits(t, kind, "one\n", "one\ntwo\n")
				below := children(t, d.PID)
				if end == "quit" {
					d.press(h.quit...)
				} else {
					send(t, d.PID, signals[end])
				}
				received(t, c, "a rejection", rejected)
				waitGone(t, below...)
				if left := d.left(); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				if out := d.pollux("journal"); !strings.Contains(out, "a.txt") {
					t.Errorf("the journal lists %q", out)
				}
			})
		}
	})
}

// Windows has no SIGTERM: an editor that ends its jobs kills them. The companion learns from
// the end of its standard input that the editor quits, and has the time to answer its agents.
// A terminal that is closed meanwhile ends the editor: Neovim used to wait forever.
func TestEditorQuitsGently(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, editor, config string
		pause                string // of the stub, in seconds; Neovim waits up to 3
		hangup               bool
	}{
		{"nvim", "nvim", ".config/nvim/init.vim", "0.5", false},
		{"vim", "vim", ".vim/vimrc", "0.5", false},
		{"nvim is hung up", "nvim", ".config/nvim/init.vim", "2", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, silent)
			input, quits, done := filepath.Join(w.home, "input"), filepath.Join(w.home, "quits"), filepath.Join(w.home, "done")
			script := fmt.Sprintf("cat >'%s'\ntouch '%s'\nsleep %s\ntouch '%s'", input, quits, tt.pause, done)
			stub := agenttest.WriteProgram(t, w.home, "stub", script, "")
			w.writeHome(tt.config, fmt.Sprintf("let g:pollux = {'command': '%s'}\n", stub))
			kind := kindOf(tt.editor)
			d := w.begin(kind, w.file("a.txt", "one\n"))
			waitFor(t, "the stub to start", func() bool {
				data, _ := os.ReadFile(input)
				return strings.Contains(string(data), "initialize")
			})
			below := children(t, d.PID)
			d.press(handsOf(kind).quit...)
			if tt.hangup {
				waitFor(t, "the editor to close the stub's input", func() bool {
					_, err := os.Stat(quits)
					return err == nil
				})
				send(t, d.PID, signals["SIGHUP"])
			}
			waitGone(t, append(below, d.PID)...)
			if _, err := os.Stat(done); err != nil && !tt.hangup {
				t.Errorf("the stub was killed: %v", err)
			}
		})
	}
}

// Neovim's terminal is closed when Neovim has begun to handle the end of its companion, which
// takes it some microseconds; strace makes them two seconds. Neovim used to wait forever.
func TestNeovimIsHungUpAfterItsCompanion(t *testing.T) {
	nvim, err := exec.LookPath("nvim")
	if err == nil {
		err = exec.Command("strace", "-o", "/dev/null", "true").Run()
	}
	if err != nil {
		t.Skip(err)
	}
	w := newWorld(t, silent)
	dir := filepath.Join(w.home, "slow")
	script := fmt.Sprintf("exec strace -D -q -o /dev/null -e trace=getsockopt "+
		"-e inject=getsockopt:delay_enter=2000000 '%s' \"$@\"", nvim)
	systest.MakeDir(t, dir)
	agenttest.WriteProgram(t, dir, "nvim", script, "")
	w.addPath(dir)
	d := w.sit(kindOf("nvim"), w.file("a.txt", "one\n"))
	companion := d.companion()
	send(t, companion, syscall.SIGKILL)
	waitGone(t, companion)
	send(t, d.PID, syscall.SIGHUP)
	waitGone(t, d.PID)
}

// setAgent writes the editor's settings: its terminal runs this command.
func (w *world) setAgent(kind editortest.Kind, argv ...string) {
	w.t.Helper()
	switch kind.Name {
	case "nvim":
		w.writeHome(".config/nvim/init.vim", fmt.Sprintf("let g:pollux = {'cli': %s}\n", toJSON(w.t, argv)))
	case "vim":
		w.writeHome(".vim/vimrc", fmt.Sprintf("let g:pollux = {'cli': %s}\n", toJSON(w.t, argv)))
	case "emacs":
		w.writeHome(".emacs.d/init.el", initEl+fmt.Sprintf(`(setq pollux-cli '("%s"))`, strings.Join(argv, `" "`)))
	}
}

// The configured agent never shows that it is ready, like an agent unknown to Pollux. The
// question used to wait forever, without a message for the user.
func TestEditorAgentNeverReady(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		w.setAgent(kind, "cat")
		d := w.sit(kind, w.file("a.txt", "one\ntwo\nthree\n"))
		d.ask(d.State.SetMaxWaits(100)) // the terminal opens meanwhile, and its mode would take the message's line
		d.press(h.send("why is this so?")...)
		d.see("was not sent: @a.txt lines 1-2: why is this so?")
	})
}

// The agent asks something, which ignores a paste. Enter chose its first answer.
func TestEditorAnswersNoQuestion(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		typed := filepath.Join(w.home, "typed")
		script := filepath.Join(w.home, "agent.sh")
		text := fmt.Sprintf("stty raw -echo\nprintf '%s\\r\\nRun rm? 1. Yes 2. No'\nexec cat >%s\n", ready, typed)
		systest.WriteFile(t, script, text)
		w.setAgent(kind, "sh", script)
		d := w.sit(kind, w.file("a.txt", "one\ntwo\nthree\n"))
		d.press(h.send("why is this so?")...)
		d.see("does not show your question")
		data, err := os.ReadFile(typed)
		if err != nil || !strings.Contains(string(data), "why is this so?") || strings.Contains(string(data), "\r") {
			t.Errorf("the agent received %q, %v", data, err)
		}
	})
}

// A question about several problems has several lines. Neovim could not show a log with it,
// and Vim showed it in one line.
func TestEditorLog(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		d, _, _ := idle(t, kind, "one\n")
		d.do("pollux#client#Note", "first line\nsecond line")
		d.command("log")
		d.until("getline('$')", "second line")
	})
}

// A plugin manager calls setup() with an empty table, which is a list in Vim script.
func TestNeovimSetup(t *testing.T) {
	d, _, _ := idle(t, kindOf("nvim"), "one\n")
	for options, want := range map[string]string{
		`{}`:                               "auto",
		`{layout = "inline"}`:              "inline",
		`{layout = "inline", colour = ""}`: `pollux: unknown option "colour"; see :help pollux-options`,
	} {
		got := d.ask(fmt.Sprintf(`luaeval('(function()
			local ok, err = pcall(require("pollux").setup, %s)
			return ok and vim.fn["pollux#Option"]("layout") or err
		end)()')`, options))
		if got != want {
			t.Errorf("setup(%s): %q, want %q", options, got, want)
		}
	}
	// Empty tables are lists in Vim script.
	d.ask(`luaeval('(function() vim.g.pollux = {}; require("pollux").setup({terminal = {}}) end)()')`)
	d.press(`:Pollux gemini My\ text`, "Enter")
	d.until("&buftype", "terminal")
	if got := d.ask("nvim_get_chan_info(&channel).argv[-1]"); got != "My text" {
		t.Errorf("the last argument of the agent is %q", got)
	}
	d.ask(`luaeval('(function()
		vim.g.pollux = {terminal = {size = 20}}
		require("pollux").setup({terminal = {position = "topleft"}})
	end)()')`)
	if got := d.ask("pollux#Option('terminal').position .. pollux#Option('terminal').size"); got != "topleft20" {
		t.Errorf("the terminal's options are %q", got)
	}
	// The window of an agent that has failed can be hidden.
	d.ask("jobstop(&channel)")
	d.press("C-\\", "C-n")
	d.until("mode()", "n")
	d.command("toggle")
	d.until("winnr('$')", "1")
}

// Lua's strings with NUL bytes are no strings in Vim script.
func TestNeovimDiagnosesNUL(t *testing.T) {
	d, _, _ := idle(t, kindOf("nvim"), "one\n")
	got := d.ask(`luaeval('(function()
		vim.api.nvim_buf_set_lines(0, 0, -1, false, {"a\0b"})
		vim.diagnostic.set(vim.api.nvim_create_namespace("x"), 0, {{lnum = 0, col = 2, message = "m"}})
		return require("pollux.diagnostics").report("").files[1].diagnostics[1].range.start.character
	end)()')`)
	if got != "3" {
		t.Errorf("the diagnostic is at column %s", got)
	}
}

// A buffer can hold NUL bytes, and Vim script cannot: they would become line ends in the file.
func TestEditorNUL(t *testing.T) {
	eachVim(t, func(t *testing.T, kind editortest.Kind) {
		d, _, path := waits(t, kind, "one\n", "two\n")
		d.enter()
		d.press("i", "C-v", "000", "Escape")
		d.until("mode() .. strtrans(getline(1))", "n^@two")
		d.until(d.State.Ready, path)
		d.press(":w", "Enter")
		d.see("the text holds NUL bytes")
		w, err := os.ReadFile(path)
		if err != nil || string(w) != "one\n" {
			t.Errorf("the file holds %q, %v", w, err)
		}
	})
}

// On Windows the directories of Neovim can end in a backslash, and C: without a separator is
// not the root of the drive.
func TestNeovimRootsOnWindows(t *testing.T) {
	d, _, _ := idle(t, kindOf("nvim"), "one\n")
	for dir, want := range map[string]string{
		`C:\proj\`: `C:\proj`, `C:/proj/`: `C:/proj`, `C:\`: `C:\`, `C:/`: `C:/`, `\\server\share\`: `\\server\share`,
	} {
		if got := d.ask(fmt.Sprintf(`pollux#context#Bare('%s', 1)`, dir)); got != want {
			t.Errorf("the workspace of %s is %s, want %s", dir, got, want)
		}
	}
	d.ask(`luaeval('(function()
		vim.lsp.get_active_clients = function() return {{config = {root_dir = _A}}} end
		vim.lsp.get_clients = vim.lsp.get_active_clients
		return 1
	end)()', getcwd() .. '/')`)
	if got := d.ask(`len(pollux#context#Roots())`); got != "1" {
		t.Errorf("a directory with a separator at its end is another workspace: there are %s", got)
	}
}
