package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/jsonrpc"
	"pollux/internal/sys/systest"
)

// lintEnv makes the test binary a language server that reports each "bad" in a file.
const lintEnv = "POLLUX_E2E_LINT"

// lintDelay is the time that the language server takes.
const lintDelay = 400 * time.Millisecond

type stdio struct {
	*os.File // standard input
}

func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }

// lint serves a language client on the standard streams and exits.
func lint() {
	var mu sync.Mutex
	texts := make(map[string]string)
	publish := func(conn *jsonrpc.Conn, uri string) {
		mu.Lock()
		defer mu.Unlock()
		conn.Notify("textDocument/publishDiagnostics", map[string]any{
			"uri": uri, "diagnostics": found(texts[uri]),
		})
	}
	handle := func(conn *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
		switch req.Method {
		case "initialize":
			return map[string]any{"capabilities": map[string]any{"textDocumentSync": 1}}, nil
		case "exit":
			os.Exit(0)
		case "textDocument/didOpen", "textDocument/didChange":
			var p struct {
				TextDocument   struct{ URI, Text string }
				ContentChanges []struct{ Text string }
			}
			if err := json.Unmarshal(req.Params, &p); err != nil {
				return nil, err
			}
			for _, change := range p.ContentChanges {
				p.TextDocument.Text = change.Text
			}
			mu.Lock()
			texts[p.TextDocument.URI] = p.TextDocument.Text
			mu.Unlock()
			time.AfterFunc(lintDelay, func() { publish(conn, p.TextDocument.URI) })
		case "textDocument/didClose":
			// As other servers do. Neovim closes a file before it reads it again.
			var p struct{ TextDocument struct{ URI string } }
			if err := json.Unmarshal(req.Params, &p); err != nil {
				return nil, err
			}
			mu.Lock()
			delete(texts, p.TextDocument.URI)
			mu.Unlock()
			publish(conn, p.TextDocument.URI)
		}
		return nil, nil
	}
	stream := editor.NewStream(stdio{os.Stdin})
	<-jsonrpc.NewConn(context.Background(), stream, jsonrpc.HandlerWithError(handle)).DisconnectNotify()
	os.Exit(0)
}

// found returns the diagnostics of a text, in the form of the Language Server Protocol.
func found(text string) []any {
	all := []any{}
	for i, line := range strings.Split(text, "\n") {
		before, _, bad := strings.Cut(line, "bad")
		if !bad {
			continue
		}
		column := len(utf16.Encode([]rune(before)))
		all = append(all, map[string]any{
			"message": badMessage, "severity": 1, "source": "lint", "code": 7,
			"range": map[string]any{
				"start": map[string]int{"line": i, "character": column},
				"end":   map[string]int{"line": i, "character": column + 3},
			},
		})
	}
	return all
}

const badMessage = "this is bad"

// A linter is something that checks files in an editor.
type linter struct {
	name    string
	editor  string
	install func(w *world, bin string)
	// lacks are the fields that it does not report; wide is set if it is right about the
	// columns after an emoji.
	lacks []string
	wide  bool
}

var linters = []linter{
	{name: "nvim", editor: "nvim", wide: true, install: func(w *world, bin string) {
		w.writeHome(".config/nvim/plugin/lint.lua", fmt.Sprintf(`
			local id = vim.lsp.start_client({name = "lint", cmd = {%q}, cmd_env = {%s = "1"}, root_dir = %q})
			vim.api.nvim_create_autocmd("BufReadPost", {callback = function(args)
				vim.lsp.buf_attach_client(args.buf, id)
			end})`, bin, lintEnv, w.project))
	}},
	{name: "vim with ALE", editor: "vim", install: func(w *world, bin string) {
		w.writeHome(".vim/plugin/lint.vim", "let g:ale_linters = {'text': ['lint']}\n")
		w.writeHome(".vim/ale_linters/text/lint.vim", fmt.Sprintf(`
			call ale#linter#Define('text', {'name': 'lint', 'lsp': 'stdio', 'executable': '%s',
				\ 'command': 'env %s=1 %%e', 'project_root': '%s'})`, bin, lintEnv, w.project))
		start := filepath.Join(w.home, ".vim", "pack", "lint", "start")
		systest.MakeDir(w.t, start)
		ale := cached(w.t, "deb", "lint", "usr", "share", "vim-ale")
		systest.Link(w.t, ale, filepath.Join(start, "ale"))
	}},
	{name: "emacs with Flymake", editor: "emacs", wide: true, lacks: []string{"source", "code"}, install: func(w *world, _ string) {
		w.writeHome(".emacs.d/init.el", initEl+fmt.Sprintf(`
			(defun lint (report &rest _)
			  (let ((buffer (current-buffer)) found)
			    (run-at-time %f nil
			      (lambda ()
			        (with-current-buffer buffer
			          (save-excursion
			            (goto-char (point-min))
			            (while (search-forward "bad" nil t)
			              (push (flymake-make-diagnostic buffer (match-beginning 0) (match-end 0) :error %q) found)))
			          (funcall report (nreverse found)))))))
			(add-hook 'text-mode-hook
			  (lambda ()
			    (add-hook 'flymake-diagnostic-functions #'lint nil t)
			    (flymake-mode 1)))`, lintDelay.Seconds(), badMessage))
	}},
	{name: "emacs with Flycheck", editor: "emacs", lacks: []string{"code"}, install: func(w *world, _ string) {
		lisp := cached(w.t, "deb", "lint", "usr", "share", "emacs", "site-lisp", "elpa-src")
		w.writeHome(".emacs.d/init.el", initEl+fmt.Sprintf(`
			(let ((default-directory %q)) (normal-top-level-add-subdirs-to-load-path))
			(require 'flycheck)
			(flycheck-define-checker lint "Finds what is bad."
			  :command ("awk" "i = index($0, \"bad\") { print NR \":\" i \"-\" i + 3 \": %s\" }" source)
			  :error-patterns ((error line-start line ":" column "-" end-column ": " (message)))
			  :modes text-mode)
			(add-hook 'text-mode-hook (lambda () (setq flycheck-checkers '(lint)) (flycheck-mode 1)))`, lisp, badMessage))
	}},
}

// eachLinter runs a test with each of some linters, in an editor with a file.
func eachLinter(t *testing.T, all []linter, script func(path *string) fakemodel.Script, test func(t *testing.T, d *desk, l linter, path string)) {
	self := systest.Self(t)
	for _, l := range all {
		t.Run(l.name, func(t *testing.T) {
			var path string
			w := newClaudeWorld(t, script(&path))
			path = w.file("a b.txt", "one\nx bad\nthree\n")
			l.install(w, self)
			test(t, w.sit(kindOf(l.editor), path), l, path)
		})
	}
}

// An agent receives what the editor shows, and after the user has accepted its change and it
// has written the file, what the editor has found in the new text.
func TestEditorDiagnostics(t *testing.T) {
	t.Parallel()
	quiet := func(*string) fakemodel.Script { return silent }
	eachLinter(t, linters, quiet, func(t *testing.T, d *desk, l linter, path string) {
		c := d.dialIDE()
		want := func(lines ...string) string {
			var all []any
			for _, f := range found(strings.Join(lines, "\n")) {
				m := f.(map[string]any)
				m["severity"], m["code"] = "Error", "7"
				for _, field := range l.lacks {
					delete(m, field)
				}
				all = append(all, m)
			}
			return toJSON(t, []any{map[string]any{"uri": "file://" + path, "diagnostics": all}})
		}
		before := want("one", "x bad", "three")
		var got string
		waitFor(t, "the editor to check the file", func() bool {
			var ok bool
			got, ok = c.diagnostics(t, map[string]any{"uri": "file://" + path})
			return ok && strings.Contains(got, badMessage)
		})
		if got != before {
			t.Errorf("before the write: %s, want %s", got, before)
		}
		third := "bad three"
		if l.wide {
			third = "\U0001F600 bad three"
		}
		// The agent waits for the editor for a bounded time: a slow machine needs several writes.
		waitFor(t, "what the editor found in the text that was written", func() bool {
			third = "!" + third // so that no answer fits two of them
			text := "one\nx bad\n" + third + "\n"
			c.send("openDiff", map[string]any{
				"old_file_path": path, "new_file_path": path, "new_file_contents": text, "tab_name": third,
			})
			d.shows(path)
			d.command("accept")
			if got, _ := c.answer(t); got != "FILE_SAVED" {
				t.Errorf("openDiff answers %q", got)
			}
			if _, ok := c.diagnostics(t, map[string]any{"uri": "file://" + path}); !ok {
				return false
			}
			systest.WriteFile(t, path, text)
			got, _ = c.diagnostics(t, map[string]any{})
			after := want("one", "x bad", third)
			if got != after {
				t.Logf("after a write: %s, want %s", got, after)
			}
			return got == after
		})
	})
}

// diagnostics calls getDiagnostics, and returns the answer with its names in order. It
// reports whether the editor had one: while an editor starts, it may not answer in time.
func (c *ideClient) diagnostics(t *testing.T, args map[string]any) (answer string, ok bool) {
	t.Helper()
	c.send("getDiagnostics", args)
	answer, ok = c.answer(t)
	if !ok {
		return answer, false
	}
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatal(err)
	}
	return toJSON(t, v), true
}

// send calls a tool. answer waits for the answer: its first text, and whether the call succeeded.
func (c *ideClient) send(tool string, args map[string]any) {
	c.t.Helper()
	c.write(toJSON(c.t, map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args},
	}))
}

func (c *ideClient) answer(t *testing.T) (text string, ok bool) {
	t.Helper()
	for {
		var m struct {
			ID     *int
			Result struct {
				Content []struct{ Text string }
				IsError bool
			}
		}
		if err := json.Unmarshal(c.read(), &m); err != nil {
			t.Fatal(err)
		}
		if m.ID == nil {
			continue
		}
		if len(m.Result.Content) == 0 {
			t.Fatalf("the answer has no text: %+v", m.Result)
		}
		return m.Result.Content[0].Text, !m.Result.IsError
	}
}

// Claude Code, the real one: after an edit its model receives what the editor has found in
// the new text, and not what was there before. The editor reports it only some time after
// the write. With -short the agent runs with one linter: TestEditorDiagnostics checks all.
func TestClaudeDiagnostics(t *testing.T) {
	if !isolated(t) {
		return
	}
	edits := func(path *string) fakemodel.Script {
		return claudeEdits(path, "Edit", map[string]any{"old_string": "three", "new_string": "a bad three"})
	}
	all := linters
	if testing.Short() {
		all = all[:1]
	}
	eachLinter(t, all, edits, func(t *testing.T, d *desk, l linter, path string) {
		c := d.dialIDE()
		waitFor(t, "the editor to check the file", func() bool {
			got, ok := c.diagnostics(t, map[string]any{})
			return ok && strings.Contains(got, badMessage)
		})
		cli := d.claude([]string{"CLAUDE_CODE_AUTO_CONNECT_IDE=true"})
		cli.see("In a b.txt")
		cli.ask("change it")
		d.shows(path)
		d.command("accept")
		cli.see(after)
		d.wantFile(path, "one\nx bad\na bad three\n")
		if got := newDiagnostics(t, d.world, "change it"); !strings.Contains(got, "[Line 3:3] "+badMessage) || strings.Contains(got, "Line 2") {
			t.Errorf("the model received %q", got)
		}
	})
}

// diagnosticsWithoutReview lets an agent that does not ask edit a file. Its model receives what
// is new. If the editor was too busy to report the earlier problems, the model receives none:
// old problems would look new.
func diagnosticsWithoutReview(t *testing.T, w *world, e *plugin, cli screen, busy bool) {
	name := map[bool]string{false: "ready.txt", true: "busy.txt"}[busy]
	path := w.file(name, "one\nx bad\nthree\n")
	asked := make(chan string, 10)
	ready := make(chan struct{})
	if !busy {
		close(ready)
	}
	diagnostics := []editor.Diagnostic{{Message: "old", Severity: editor.SeverityWarning}}
	edits := false
	e.mu.Lock()
	e.report = func(p editor.DiagnosticsParams) editor.DiagnosticsResult {
		e.mu.Lock()
		edits = edits || p.Path != ""
		if !edits { // a later prompt begins with the question for all files
			defer e.mu.Unlock()
			return editor.DiagnosticsResult{}
		}
		e.mu.Unlock()
		asked <- p.Path
		<-ready
		e.mu.Lock()
		defer e.mu.Unlock()
		return editor.DiagnosticsResult{Files: []editor.FileDiagnostics{{Path: path, Diagnostics: diagnostics}}}
	}
	e.mu.Unlock()
	cli.ask("change " + name)
	if got := next(t, "question", asked); got != path {
		t.Errorf("it asks for %q first", got)
	}
	waitFor(t, "the write", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "3")
	})
	e.mu.Lock()
	diagnostics = append(diagnostics, editor.Diagnostic{Message: "new", Severity: editor.SeverityError})
	e.mu.Unlock()
	if busy {
		close(ready)
	} else { // an editor checks a file after it has read it again
		for next(t, "changed file", e.changed) != path {
		}
	}
	if err := e.DiagnosticsChanged(path); err != nil {
		t.Fatal(err)
	}
	cli.see(changedFile(name))
	got := newDiagnostics(t, w, "change "+name)
	if strings.Contains(got, "old") || strings.Contains(got, "[Line 1:1] new") == busy {
		t.Errorf("the model received %q", got)
	}
}

// newDiagnostics returns what the model received about new problems after a prompt.
func newDiagnostics(t *testing.T, w *world, prompt string) string {
	t.Helper()
	r := w.request(func(r fakemodel.Request) bool { return r.Step == 2 && strings.Contains(r.Prompt, prompt) })
	all := r.System + r.Text
	_, text, _ := strings.Cut(all[strings.LastIndex(all, prompt):], "<new-diagnostics>")
	text, _, _ = strings.Cut(text, "</new-diagnostics>")
	return text
}
