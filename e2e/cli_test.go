package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

// write returns a model that writes one file and then says so.
func write(path *string, content string) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		if r.Step > 0 {
			return fakemodel.Say("The tool has answered.")
		}
		return fakemodel.CallTool("write_file", map[string]any{"file_path": *path, "content": content})
	}
}

const (
	asks  = "Apply this change?"
	after = "The tool has answered."
)

// propose sets up most tests: the CLI is connected to an editor, has proposed a
// change to a file, and asks about it.
func propose(t *testing.T, before, proposed string) (w *world, path string, e *plugin, cli *terminal, d editor.Diff) {
	t.Helper()
	w = newWorld(t, write(&path, proposed))
	path = w.file("f.txt", before)
	e = w.edit(nil)
	cli = e.gemini(w)
	cli.prompt("change it")
	d = next(t, "diff", e.opened)
	cli.expect(asks)
	return w, path, e, cli, d
}

func TestConnectsAndSendsContext(t *testing.T) {
	w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("Seen.") })
	a, b := w.file("a.go", "package a\n"), w.file("b.go", "package b\n")
	w.file(".env", "SECRET=1\n")
	e := w.edit(nil)
	e.Update(w.context(), editor.Snapshot{Files: []editor.File{
		{Path: a, Focused: 10, Active: true, Cursor: &editor.Cursor{Line: 1, Character: 9}, Selection: "package"},
		{Path: b, Focused: 5},
		{Path: filepath.Join(w.project, ".env"), Focused: 7},
		{Path: filepath.Join(w.project, "unsaved"), Focused: 6},
	}})
	cli := w.gemini(current, append(e.env(), plain()...))
	cli.ideStatus("Connected to Test Editor")
	cli.expect("a.go (active)")
	cli.prompt("hello there")
	cli.expect("Seen.")
	r, err := w.model.Wait(w.context(), func(r fakemodel.Request) bool { return strings.Contains(r.Prompt, "hello there") })
	if err != nil {
		t.Fatal(err)
	}
	got := editorContext(t, r.Text)
	want := map[string]any{
		"activeFile":     map[string]any{"path": a, "cursor": map[string]any{"line": 1.0, "character": 9.0}, "selectedText": "package"},
		"otherOpenFiles": []any{b},
	}
	if g, w := toJSON(t, got), toJSON(t, want); g != w {
		t.Errorf("the model received %s, want %s", g, w)
	}

	// Later prompts contain what has changed.
	e.Update(w.context(), editor.Snapshot{Files: []editor.File{{Path: b, Focused: 20, Active: true, Cursor: &editor.Cursor{Line: 2, Character: 1}}}})
	cli.expect("1 open file")
	cli.prompt("and now")
	r, err = w.model.Wait(w.context(), func(r fakemodel.Request) bool { return strings.Contains(r.Prompt, "and now") })
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Prompt, "filesClosed") || !strings.Contains(r.Prompt, "activeFileChanged") {
		t.Errorf("the second prompt came with %q, want the changes", r.Prompt)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// editorContext returns the JSON object with the editor's context from a
// request.
func editorContext(t *testing.T, text string) (v any) {
	t.Helper()
	_, rest, ok := strings.Cut(text, "editor context as a JSON object")
	if !ok {
		t.Fatalf("no editor context in %q", tail(text, 2000))
	}
	_, rest, _ = strings.Cut(rest, "```json\n")
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAcceptWithEdits(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "one\ntwo\n"))
	path = w.file("f.txt", "one\n")
	e := w.edit(nil)
	cli := e.gemini(w)
	cli.prompt("change it")
	d := next(t, "diff", e.opened)
	if d.Path != path || d.Original != "one\n" || d.Proposed != "one\ntwo\n" || !d.Exists {
		t.Errorf("diff/open said %+v", d)
	}
	cli.expect(asks)
	res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "one\nthree\n"})
	if err != nil || res.Status != editor.StatusAccepted {
		t.Fatalf("accept = %+v, %v", res, err)
	}
	cli.expect(after)
	w.wantFile(path, "one\nthree\n")
}

func TestReject(t *testing.T) {
	w, path, e, cli, d := propose(t, "one\n", "two\n")
	if err := e.Reject(w.context(), d.ID); err != nil {
		t.Fatal(err)
	}
	cli.expect("Request cancelled", ready)
	w.wantFile(path, "one\n")
}

// Trap 1: closeDiff returns JSON. With bare text the CLI would lose the edits
// that the user made before the yes in the terminal, and it would parse text
// that happens to be a JSON object with a content key.
func TestTrap1YesInTheTerminalKeepsEdits(t *testing.T) {
	for _, tt := range []struct{ name, edited string }{
		{"edits", "one\nmine\n"},
		{"JSON", `{"content": "not this"}` + "\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, path, e, cli, d := propose(t, "one\n", "one\ntwo\n")
			e.leave(d.ID, tt.edited) // typed a moment ago, not yet sent
			cli.keys("1")
			if c := next(t, "close", e.closed); c.ID != d.ID || c.Reason != editor.ReasonClosed {
				t.Errorf("diff/close said %+v", c)
			}
			cli.expect(after)
			w.wantFile(path, tt.edited)
		})
	}
}

// Trap 2: a diffRejected sent when the CLI closes a diff would turn the user's
// yes into a rejection. Trap 3: the CLI sends suppressNotification, which the
// specification does not mention.
func TestTrap2And3YesInTheTerminalIsNoRejection(t *testing.T) {
	w, path, e, cli, _ := propose(t, "one\n", "one\ntwo\n")
	cli.keys("1")
	cli.expect(after)
	w.wantFile(path, "one\ntwo\n")
	if diffs, err := e.Diffs(w.context()); err != nil || len(diffs) != 0 {
		t.Errorf("still open: %v, %v", diffs, err)
	}
}

func TestNoInTheTerminalClosesTheDiff(t *testing.T) {
	w, path, e, cli, d := propose(t, "one\n", "two\n")
	cli.keys("\x1b")
	if c := next(t, "close", e.closed); c.ID != d.ID {
		t.Errorf("diff/close said %+v", c)
	}
	w.wantFile(path, "one\n")
}

// Trap 4: openDiff with isError breaks a later yes in the terminal, so a
// companion returns it only if no client can show the diff. The review page
// can.
func TestTrap4NoEditorStillShowsOnThePage(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "two\n"))
	path = w.file("f.txt", "one\n")
	e := w.edit(func(p *editor.InitializeParams) { p.Diff = false; p.Settings.ReviewPage = true })
	cli := e.gemini(w)
	cli.prompt("change it")
	cli.expect(asks)
	cli.keys("1")
	cli.expect(after)
	w.wantFile(path, "two\n")
}

// Trap 4, for files that cannot be displayed: the CLI took the error for its
// own bug ("CRITICAL: Unhandled Promise Rejection"), and the yes in its
// terminal wrote nothing.
func TestTrap4WhatCannotBeDisplayed(t *testing.T) {
	for _, tt := range []struct{ name, old, proposed string }{
		{"latin1.py", "# caf\xe9\nx = 1\n", "# cafe\nx = 2\n"},
		{"binary", "a\x00b\n", "text\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var path string
			w := newWorld(t, write(&path, tt.proposed))
			path = w.file(tt.name, tt.old)
			e := w.edit(nil)
			cli := e.gemini(w)
			cli.prompt("change it")
			cli.expect(asks)
			if text := next(t, "message", e.texts); !strings.Contains(text, path) || !strings.Contains(text, "Answer in the terminal") {
				t.Errorf("the user reads %q", text)
			}
			cli.keys("1")
			cli.expect(after)
			w.wantFile(path, tt.proposed)
			cli.prompt("and again") // the error appeared in the next turn
			cli.expect(asks)
			cli.keys("1")
			cli.expect(after)
			cli.mu.Lock()
			defer cli.mu.Unlock()
			if strings.Contains(cli.text, "CRITICAL") || strings.Contains(cli.text, "Unhandled") {
				t.Error("the CLI reports an internal error")
			}
		})
	}
}

// Trap 5: the CLI treats empty content as missing and writes its own proposal.
func TestTrap5EmptyTextIsNotAccepted(t *testing.T) {
	w, path, e, cli, d := propose(t, "one\n", "two\n")
	res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: ""})
	if err != nil || res.Status != editor.StatusRefused || res.Message == "" {
		t.Errorf("accept of an empty text = %+v, %v; want a warning", res, err)
	}
	w.wantFile(path, "one\n")
	if _, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "rest\n"}); err != nil {
		t.Fatal(err)
	}
	cli.expect(after)
	w.wantFile(path, "rest\n")
}

// Trap 6: a companion that exits leaves no CLI waiting.
func TestTrap6EditorGoneAnswersTheCLI(t *testing.T) {
	for _, way := range []string{"end of input", "SIGTERM", "SIGHUP"} {
		t.Run(way, func(t *testing.T) {
			w, path, e, cli, _ := propose(t, "one\n", "two\n")
			switch way {
			case "end of input":
				e.Client.Close()
			default:
				e.cmd.Process.Signal(signals[way])
			}
			cli.expect("Request cancelled", ready)
			w.wantFile(path, "one\n")
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(w.project), "tmp", "gemini", "ide", "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if out := w.pollux("journal"); !strings.Contains(out, "  "+filepath.Base(path)+"  ") {
				t.Errorf("the journal has %q, want the proposal", out)
			}
		})
	}
}

// Trap 7: two CLIs change one file, and each receives its own answer. The path
// in the answer is the one that the CLI sent, with symlinks resolved.
func TestTrap7TwoCLIsOnOneFile(t *testing.T) {
	var path string
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if r.Step > 0 {
			return fakemodel.Say(after)
		}
		text := "first\n"
		if strings.Contains(r.Prompt, "second") {
			text = "second\n"
		}
		return fakemodel.CallTool("write_file", map[string]any{"file_path": path, "content": text})
	})
	path = w.file("f.txt", "one\n")
	e := w.edit(nil)
	one := e.gemini(w)
	two := e.gemini(w)
	one.prompt("the first")
	d1 := next(t, "diff", e.opened)
	two.prompt("the second")
	d2 := next(t, "second diff", e.opened)
	one.expect(asks)
	two.expect(asks)
	if err := e.Reject(w.context(), d2.ID); err != nil {
		t.Fatal(err)
	}
	two.expect("Request cancelled", ready)
	w.wantFile(path, "one\n")
	if res, err := e.Accept(w.context(), editor.DiffAccept{ID: d1.ID, Content: d1.Text()}); err != nil || res.Status != editor.StatusAccepted {
		t.Fatalf("accept = %+v, %v", res, err)
	}
	one.expect(after)
	w.wantFile(path, "first\n")
}

// Trap 7, line endings: the CLI proposes LF for a CRLF file and restores CRLF.
func TestTrap7LineEndsAndMarksSurvive(t *testing.T) {
	for _, tt := range []struct{ name, before, proposed, accepted, want string }{
		{"CRLF", "one\r\ntwo\r\n", "one\n2\n", "one\ntwo!\n", "one\r\ntwo!\r\n"},
		{"BOM", "\uFEFFone\n", "two\n", "two!\n", "\uFEFFtwo!\n"},
		{"no final newline", "one", "two", "two!", "two!"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, path, e, cli, d := propose(t, tt.before, tt.proposed)
			if _, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: tt.accepted}); err != nil {
				t.Fatal(err)
			}
			cli.expect(after)
			w.wantFile(path, tt.want)
		})
	}
}

// Trap 8: Ctrl-C closes the diff without suppressNotification.
func TestTrap8InterruptClosesTheDiff(t *testing.T) {
	w, path, e, cli, d := propose(t, "one\n", "two\n")
	cli.keys("\x03")
	cli.keys("\x03")
	if c := next(t, "close", e.closed); c.ID != d.ID {
		t.Errorf("diff/close said %+v", c)
	}
	w.wantFile(path, "one\n")
}

// Trap 8, without a trace: after one Ctrl-C the CLI has cancelled the change
// and continues. It sends nothing, not even with the next prompt, and ignores
// the accept. The user read that the change was accepted.
func TestTrap8CancelledChangeIsNotWritten(t *testing.T) {
	w, path, e, cli, d := propose(t, "one\n", "two\n")
	cli.keys("\x03")
	cli.expect("Request cancelled")
	if _, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "two, edited\n"}); err != nil {
		t.Fatal(err)
	}
	if ch := next(t, "diff/changed", e.events); ch.ID != d.ID || ch.State != editor.StateAccepted {
		t.Errorf("diff/changed said %+v", ch)
	}
	if c := next(t, "close", e.closed); c.ID != d.ID || c.Reason != editor.ReasonUnwritten {
		t.Errorf("diff/close said %+v", c)
	}
	restore := "pollux journal restore " + d.ID
	if text := next(t, "message", e.texts); !strings.Contains(text, path) || !strings.Contains(text, restore) {
		t.Errorf("the user reads %q", text)
	}
	w.wantFile(path, "one\n")
	if out := w.pollux("journal"); !strings.Contains(out, "accepted, not written, edited") || !strings.Contains(out, restore) {
		t.Errorf("the journal says %q", out)
	}
	w.pollux(strings.Fields(restore)[1:]...)
	w.wantFile(path, "two, edited\n")
}

// Trap 8: when a CLI is killed, only its event stream ends. Pollux keeps the
// proposal and notifies the user, who can still save the text to the file.
func TestTrap8KilledCLILeavesTheProposal(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "two\n"))
	path = w.file("f.txt", "one\n")
	e := w.edit(nil)
	cli := e.gemini(w)
	cli.prompt("change it")
	d := next(t, "diff", e.opened)
	cli.expect(asks)
	killSession(t, cli.cmd.Process.Pid)
	if ch := next(t, "word of the end", e.events); ch.ID != d.ID || ch.State != editor.StateOrphaned {
		t.Errorf("diff/changed said %+v", ch)
	}
	if text := next(t, "message", e.texts); !strings.Contains(text, "kept") {
		t.Errorf("the user read %q", text)
	}
	var res editor.DiffAcceptResult
	if err := e.Call(w.context(), editor.MethodDiffSave, editor.DiffAccept{ID: d.ID, Content: "two, saved\n"}, &res); err != nil || res.Status != editor.StatusAccepted {
		t.Fatalf("save = %+v, %v", res, err)
	}
	w.wantFile(path, "two, saved\n")
}

// The CLI overwrites the current contents of the file, so the user decides
// whether it may.
func TestChangedOnDiskIsAConflict(t *testing.T) {
	w, path, e, cli, d := propose(t, "one\n", "two\n")
	w.file("f.txt", "one, and somebody else's line\n")
	res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Text()})
	if err != nil || res.Status != editor.StatusConflict || res.Disk != "one, and somebody else's line\n" {
		t.Fatalf("accept = %+v, %v; want a conflict with the file's text", res, err)
	}
	w.wantFile(path, "one, and somebody else's line\n")
	if res, err = e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Text(), Overwrite: res.Version}); err != nil || res.Status != editor.StatusAccepted {
		t.Fatalf("accept again = %+v, %v", res, err)
	}
	cli.expect(after)
	w.wantFile(path, "two\n")
}

// With two editors on one project, the environment of the terminal decides.
func TestTwoCompanionsOnOneWorkspace(t *testing.T) {
	w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") })
	one := w.edit(func(p *editor.InitializeParams) { p.Editor.DisplayName = "Window One" })
	two := w.edit(func(p *editor.InitializeParams) { p.Editor.DisplayName = "Window Two" })
	for _, tt := range []struct {
		e    *plugin
		name string
	}{{one, "Window One"}, {two, "Window Two"}} {
		cli := w.gemini(current, tt.e.env())
		cli.ideStatus("Connected to " + tt.name)
	}
}

// Without environment variables, the CLI finds the companion by its discovery
// file.
func TestFoundByFileAlone(t *testing.T) {
	w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") })
	w.edit(nil)
	cli := w.gemini(current, plain())
	cli.ideStatus("Connected to Test Editor")
}

// A root whose name contains a colon and a percent sign.
func TestOddWorkspaceName(t *testing.T) {
	w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") })
	odd := filepath.Join(w.project, "a:b %41")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	w.project = odd
	w.edit(nil)
	cli := w.gemini(current, nil)
	cli.ideStatus("Connected to Test Editor")
}

// After a crash the companion restarts with the same port and token. The user
// has to run /ide enable, because the CLI does not reconnect by itself.
func TestCompanionRestarted(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "two\n"))
	path = w.file("f.txt", "one\n")
	e := w.edit(nil)
	cli := e.gemini(w)
	// The CLI is connected once it has the context. (/ide status would already
	// show what /ide enable shows.)
	if err := e.Update(w.context(), editor.Snapshot{Files: []editor.File{{Path: path, Active: true}}}); err != nil {
		t.Fatal(err)
	}
	cli.expect("1 open file")
	// The CLI's old connection tries twice to reconnect. A failure after /ide
	// enable would close the new connection, so wait for both.
	attempts := make(chan bool, 10)
	gap := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		http.NotFound(rw, nil)
		attempts <- true
	})}
	var resume []func() // once somebody listens
	for _, pid := range append(children(t, cli.cmd.Process.Pid), cli.cmd.Process.Pid) {
		resume = append(resume, suspend(t, pid))
	}
	e.cmd.Process.Kill()
	<-e.Done()
	e.cmd.Wait()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", e.info.Port))
	if err != nil {
		t.Fatal(err)
	}
	go gap.Serve(l)
	for _, f := range resume {
		f()
	}
	next(t, "first attempt", attempts)
	next(t, "second attempt", attempts)
	gap.Close()
	again := w.edit(func(p *editor.InitializeParams) {
		p.Settings.Port, p.Settings.Token = e.info.Port, e.info.Token
	})
	if again.info.Port != e.info.Port {
		t.Errorf("port %d after the restart, was %d", again.info.Port, e.info.Port)
	}
	cli.prompt("/ide enable")
	cli.expect("Connected to Test Editor")
	cli.prompt("change it")
	d := next(t, "diff", again.opened)
	if _, err := again.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Text()}); err != nil {
		t.Fatal(err)
	}
	cli.expect(after)
	w.wantFile(path, "two\n")
}

// The stdio transport, for a CLI that cannot reach the port.
func TestStdioTransport(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "one\ntwo\n"))
	path = w.file("f.txt", "one\n")
	e := w.edit(nil)
	// The environment and the discovery files name a port on which nobody
	// listens, so only the command is left.
	env := e.env()
	for i, kv := range env {
		if strings.HasPrefix(kv, "GEMINI_CLI_IDE_SERVER_PORT=") {
			env[i] = "GEMINI_CLI_IDE_SERVER_PORT=1"
		}
	}
	empty := filepath.Join(w.home, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	env = append(env, "TMPDIR="+empty, "TERM_PROGRAM=sublime") // without it the CLI detects no editor
	cli := w.gemini(current, env)
	cli.ideStatus("Connected to")
	st, err := e.Status(w.context())
	if err != nil || len(st.Clients) != 1 || st.Clients[0].Transport != "stdio" {
		t.Fatalf("status = %+v, %v; want one client on stdio", st.Clients, err)
	}
	cli.prompt("change it")
	d := next(t, "diff", e.opened)
	cli.expect(asks)
	if _, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "one\nover stdio\n"}); err != nil {
		t.Fatal(err)
	}
	cli.expect(after)
	w.wantFile(path, "one\nover stdio\n")
}

// The old release finds its companion only by the exact PID.
func TestOldRelease(t *testing.T) {
	var path string
	w := newWorld(t, write(&path, "one\ntwo"))
	path = w.file("f.txt", "one")
	w.writeHome(".gemini/settings.json", `{
		"general": {"disableAutoUpdate": true, "disableUpdateNag": true},
		"security": {"auth": {"selectedType": "gemini-api-key"}},
		"ide": {"enabled": true, "hasSeenNudge": true},
		"tools": {"useRipgrep": false},
		"privacy": {"usageStatisticsEnabled": false}}`)
	// The test is the editor, and a shell below it runs the CLI. The CLI looks
	// up the shell's grandparent, which is our parent.
	e := w.edit(nil)
	cli := w.gemini(old, plain())
	cli.ideStatus("Connected to Test Editor")
	cli.prompt("change it")
	d := next(t, "diff", e.opened)
	cli.expect(asks)
	if _, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "one\nthree"}); err != nil {
		t.Fatal(err)
	}
	cli.expect(after)
	w.wantFile(path, "one\nthree")
}
