package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// onePieceEnv makes the test binary a companion for [TestEmacsRequestWithAnswer].
const onePieceEnv = "POLLUX_E2E_ONE_PIECE"

// endEnv names the file that [onePiece] makes when it has cleaned up.
const endEnv = "POLLUX_E2E_END"

// onePiece is a companion that writes each answer and a request in one piece. It reports the
// answer to its request with a message. At the end of its input it cleans up, for a while,
// and exits.
func onePiece() {
	var piece bytes.Buffer
	stream := editor.NewStream(struct {
		io.Reader
		io.Writer
		io.Closer
	}{os.Stdin, &piece, os.Stdin})
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if stream.ReadObject(&m) != nil {
			if end := os.Getenv(endEnv); end != "" {
				time.Sleep(100 * time.Millisecond)
				os.WriteFile(end, nil, 0o600)
			}
			os.Exit(0)
		}
		var out []map[string]any
		switch {
		case m.Method == "initialize":
			out = []map[string]any{{"id": m.ID, "result": map[string]any{"protocol": editor.ProtocolVersion}}}
		case m.Method == "":
			out = []map[string]any{{"method": "message", "params": map[string]any{"text": "answered"}}}
		case m.ID != nil:
			out = []map[string]any{
				{"id": m.ID, "result": map[string]any{}},
				{"id": 1, "method": "diagnostics", "params": map[string]any{}},
			}
		}
		for _, o := range out {
			o["jsonrpc"] = "2.0"
			stream.WriteObject(o)
		}
		os.Stdout.Write(piece.Bytes())
		piece.Reset()
	}
}

// Emacs answers a request that arrives together with the answer to its own.
func TestEmacsRequestWithAnswer(t *testing.T) {
	t.Parallel()
	self := systest.Self(t)
	emacs := batchEmacs(t, filepath.Join(repo, "editors", "emacs"), fmt.Sprintf(`
		(progn
		  (defvar said nil)
		  (advice-add 'pollux--say :before (lambda (&rest args) (setq said args)))
		  (setq pollux-command %q)
		  (pollux-start)
		  (while (not (or said (pollux-ready-p))) (accept-process-output nil 1))
		  (pollux--call 'diff/accept '(:id "1"))
		  (with-timeout (20 (error "No message: %%S" said))
		    (while (not said) (accept-process-output nil 1))))`, self))
	emacs.Env = append(emacs.Env, onePieceEnv+"=1")
	out, err := emacs.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "pollux: answered") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Emacs for Windows lets Pollux clean up when it ends. It would kill Pollux at once, as its
// signal does to the companion here.
func TestEmacsLetsPolluxEnd(t *testing.T) {
	t.Parallel()
	self := systest.Self(t)
	end := filepath.Join(t.TempDir(), "end")
	emacs := batchEmacs(t, filepath.Join(repo, "editors", "emacs"), fmt.Sprintf(`
		(progn
		  (setq pollux-command %q
		        system-type 'windows-nt)
		  (pollux-start)
		  (with-timeout (20 (error "It did not start"))
		    (while (not (pollux-ready-p)) (accept-process-output nil 1))))`, self))
	emacs.Env = append(emacs.Env, onePieceEnv+"=1", endEnv+"="+end)
	out, err := emacs.CombinedOutput()
	if _, gone := os.Stat(end); err != nil || gone != nil {
		t.Errorf("%v, %v\n%s", err, gone, out)
	}
}

// The user asks for an agent before the companion has sent their names.
func TestEmacsAgentsArriveLater(t *testing.T) {
	t.Parallel()
	emacs := batchEmacs(t, filepath.Join(repo, "editors", "emacs"), `
		(cl-letf (((symbol-function 'completing-read)
		           (lambda (_prompt table &rest _)
		             (test-completion "claude" table nil)
		             (setq pollux--info '(:agents ((:command "claude"))))
		             (princ (if (test-completion "claude" table nil) "found" "unknown")))))
		  (pollux--read-agent))`)
	if out, err := emacs.Output(); err != nil || string(out) != "found" {
		t.Errorf("%v: %q", err, out)
	}
}

// batchEmacs returns a command that evaluates an expression in an Emacs that has loaded the
// plugin in dir.
func batchEmacs(t *testing.T, dir, expression string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("emacs"); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" {
			t.Fatalf("%v: run scripts/setup.sh", err)
		}
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	emacs := exec.CommandContext(ctx, "emacs", "-Q", "--batch", "-l", filepath.Join(dir, "pollux.el"), "--eval", expression)
	emacs.Env = append(os.Environ(), "HOME="+t.TempDir())
	return emacs
}

// What differs on other systems, and can be shown on Linux.
func TestEmacsElsewhere(t *testing.T) {
	t.Parallel()
	plugin, project := t.TempDir(), t.TempDir()
	source := systest.ReadFile(t, filepath.Join(repo, "editors", "emacs", "pollux.el"))
	program := filepath.Join(project, "Jürgen", "pollux")
	ran := filepath.Join(project, "ran")
	for path, text := range map[string]string{
		filepath.Join(plugin, "pollux.el"): source,
		filepath.Join(plugin, "command"):   program + "\n",
		program:                            "#!/bin/sh\n",
		filepath.Join(project, "ssh"):      "#!/bin/sh\ntouch " + ran + "\n",
		filepath.Join(project, "a.txt"):    "a\n",
		filepath.Join(project, "b.txt"):    "b\n",
	} {
		systest.MakeDir(t, filepath.Dir(path))
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	systest.Link(t, project, link)
	for _, tt := range []struct{ name, expression, want string }{
		{
			"the program's path is not ASCII", `(progn (prefer-coding-system 'windows-1252) (setq file-name-coding-system 'utf-8)
			        (message "%s" (string-suffix-p "/J\u00fcrgen/pollux" (pollux--program))))`, "t\n",
		},
		{
			"Windows has no terminals",
			`(let ((system-type 'windows-nt)) (condition-case err (pollux--backend) (error (message "%s" err))))`,
			"Emacs for Windows has no terminal",
		},
		{
			"an agent names a file on another machine", `(message "%s" (list (pollux--visiting "/ssh:host.invalid:/x") (file-exists-p "` + ran + `")))`, "(nil nil)\n",
		},
		{
			"an agent has another name for the file", `(progn (find-file "` + project + `/a.txt")
			        (set-window-buffer (split-window) (find-file-noselect "` + project + `/b.txt"))
			        (message "%s" (buffer-name (window-buffer (pollux--beside "` + link + `/b.txt")))))`, "b.txt\n",
		},
		{ // it became writable
			"a buffer that the user has made read-only", `(with-current-buffer (find-file-noselect "` + project + `/b.txt")
			        (setq buffer-read-only t) (write-region "B\n" nil buffer-file-name nil 'quiet)
			        (set-visited-file-modtime '(1 0)) (pollux--reload buffer-file-name)
			        (message "%s %s" (buffer-string) buffer-read-only))`, "B\n t\n",
		},
		{
			"the program has been removed",
			`(progn (delete-directory "` + project + `" t) (message "got %s" (pollux--program)))`, "got pollux\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			emacs := batchEmacs(t, plugin, tt.expression)
			emacs.Env = append(emacs.Env, "PATH="+project+":"+os.Getenv("PATH"))
			if out, err := emacs.CombinedOutput(); err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A daemon may have no frame that the user sees. A change that an agent proposes then is shown in
// the next frame, and one whose frame was closed in another.
func TestEmacsDaemon(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("a.txt", "one\n")
	d := w.sit(kindOf("emacs"), "--fg-daemon")
	c := d.cli()
	d.propose(c, path, "two\n")
	d.until(d.State.Waiting, "1")
	socket := d.ask(`(expand-file-name server-name server-socket-dir)`)
	open := func(name string) screen { return w.screen(nil, "emacsclient", "-s", socket, "-t", name) }
	shows := func(frame screen) {
		t.Helper()
		frame.see("C-c C-c accepts")
		d.shows(path)
	}
	next := func(frame screen) {
		t.Helper()
		frame.press("M-x")
		frame.keys("pollux-next")
		frame.press("Enter")
		d.until(d.State.Inside, "1")
	}
	first := open("a.txt")
	shows(first)
	second := open("b.txt")
	second.see("Pollux[1]")
	next(second)
	shows(second)
	waitFor(t, "the first frame's windows", func() bool { return !strings.Contains(first.Text(), "C-c C-c accepts") })
	second.press("C-x", "C-c")
	shows(first)
	first.Close()
	d.until(d.State.Shown, "")
	last := open("a.txt")
	shows(last)
	next(last)
	last.press("C-c", "C-c")
	wantSaved(t, c, path, "two\n")
}

// Ediff takes all windows. They come back when it ends, or when the user has decided: the control
// panel of a change that was gone stayed, and the agent's terminal was out of sight. A change that
// was in Ediff before is shown there again, with the file as it is then.
func TestEmacsEdiff(t *testing.T) {
	d, c, path := idle(t, kindOf("emacs"), "one\n")
	d.resize(80, 24)
	d.press("C-x", "3")
	const panel = "Ediff Control Panel"
	gone := func(windows int) {
		t.Helper()
		d.until(`(format "%d windows, %s" (length (window-list)) (seq-some (lambda (w)
			(string-match-p "Ediff" (buffer-name (window-buffer w)))) (window-list)))`, fmt.Sprintf("%d windows, nil", windows))
	}
	d.review(c, path, "two\n")
	d.enter()
	d.press("C-c", "C-e")
	d.see(panel)
	d.press("q")
	d.see("Quit this Ediff session?")
	d.press("y")
	gone(3)
	d.until(d.State.Inside, "1")

	d.file(filepath.Base(path), "theirs\n")
	d.press("C-c", "C-c")
	d.see("has changed on disk")
	d.press("c")
	d.see(panel)
	d.see("theirs")
	d.shows(path)
	d.enter()
	d.press("C-c", "C-c")
	wantSaved(t, c, path, "two\n")
	d.until(d.State.Shown, "")
	gone(2)

	d.review(c, path, "three\n")
	d.enter()
	d.press("C-c", "C-e")
	d.see(panel)
	d.enter()
	d.press("C-x", "k", "Enter")
	received(t, c, "a rejection", rejected)
	d.until(d.State.Shown, "")
	gone(2)
}
