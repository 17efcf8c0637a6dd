package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
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

// Gemini CLI, the real one, and a scripted editor. It is one session, because the CLI's start
// takes longer than all of its answers.
func TestGemini(t *testing.T) {
	type proposal struct{ file, text string }
	proposals := map[string]proposal{
		"killed.txt":    {"", "two\n"},
		"stdio.txt":     {"", "one\ntwo\n"},
		"typed.txt":     {"", "one\ntwo\n"},
		"json.txt":      {"", "one\ntwo\n"},
		"no.txt":        {"", "two\n"},
		"latin1.py":     {"", "# cafe\nx = 2\n"},
		"binary":        {"", "text\n"},
		"empty.txt":     {"", "two\n"},
		"crlf.txt":      {"", "one\n2\n"},
		"bom.txt":       {"", "two\n"},
		"no-end.txt":    {"", "two"},
		"conflict.txt":  {"", "two\n"},
		"cancelled.txt": {"", "two\n"},
		"first":         {"both.txt", "first\n"},
		"second":        {"both.txt", "second\n"},
		"closed.txt":    {"", "two\n"},
		"crash.txt":     {"", "two\n"},
	}
	var w *world
	w = newWorld(t, changes(func(name string) []fakemodel.Part {
		p, ok := proposals[name]
		if !ok {
			return nil
		}
		path := filepath.Join(w.project, cmp.Or(p.file, name))
		return []fakemodel.Part{{Call: "write_file", Args: map[string]any{"file_path": path, "content": p.text}}}
	}))
	e := w.edit(nil)

	// proposed asks a CLI for a change, and returns it when the CLI asks about it.
	proposed := func(cli *terminal, e *plugin, name string) editor.Diff {
		t.Helper()
		cli.prompt("change " + name)
		d := next(t, "diff", e.opened)
		if want := cmp.Or(proposals[name].file, name); filepath.Base(d.Path) != want {
			t.Fatalf("the diff is %+v, want one of %s", d, want)
		}
		cli.expect(asks)
		return d
	}
	// message waits until the user reads about a file, and returns the text.
	message := func(e *plugin, path string) (text string) {
		t.Helper()
		for !strings.Contains(text, path) {
			text = next(t, "message", e.texts)
		}
		return text
	}

	a, b := w.file("a.go", "package a\n"), w.file("b.go", "package b\n")
	w.file(".env", "SECRET=1\n")
	e.Update(editor.Snapshot{Files: []editor.File{
		{Path: a, Focused: 10, Active: true, Cursor: &editor.Cursor{Line: 1, Character: 9}, Selection: "package"},
		{Path: b, Focused: 5},
		{Path: filepath.Join(w.project, ".env"), Focused: 7},
		{Path: filepath.Join(w.project, "unsaved"), Focused: 6},
	}})
	// Without environment variables, the CLI finds the companion by its discovery file.
	cli := w.gemini(current, plain())
	step(t, "context", func(t *testing.T) {
		p := &patient{world: w, editor: e, dir: w.project, bin: filepath.Dir(geminiCLI(t)), env: []string{"REMOTE_CONTAINERS=1"}, parts: []string{"gemini"}}
		p.wantUnwell(nil)
		cli.ideStatus("Connected to Test Editor")
		cli.expect("a.go (active)")
		cli.prompt("hello there")
		cli.expect(after)
		r := w.prompted("hello there")
		got := editorContext(t, r.Text)
		want := map[string]any{
			"activeFile":     map[string]any{"path": a, "cursor": map[string]any{"line": 1.0, "character": 9.0}, "selectedText": "package"},
			"otherOpenFiles": []any{b},
		}
		if g, w := toJSON(t, got), toJSON(t, want); g != w {
			t.Errorf("the model received %s, want %s", g, w)
		}
		// Later prompts contain what has changed.
		e.Update(editor.Snapshot{Files: []editor.File{{Path: b, Focused: 20, Active: true, Cursor: &editor.Cursor{Line: 2, Character: 1}}}})
		cli.expect("1 open file")
		cli.prompt("and now")
		r = w.prompted("and now")
		if !strings.Contains(r.Prompt, "filesClosed") || !strings.Contains(r.Prompt, "activeFileChanged") {
			t.Errorf("the second prompt came with %q, want the changes", r.Prompt)
		}
		cli.expect(after)
	})

	// With two editors on one project, the environment of the terminal decides.
	other := w.edit(func(p *editor.InitializeParams) { p.Editor.DisplayName = "Window Two" })
	var two *terminal
	var orphan editor.Diff
	step(t, "two editors", func(t *testing.T) {
		theirs := w.gemini(current, other.env())
		theirs.ideStatus("Connected to Window Two")
		w.file("killed.txt", "one\n")
		orphan = proposed(theirs, other, "killed.txt")
		systest.KillGroup(theirs.cmd.Process.Pid) // what becomes of its change: below
	})
	// The stdio transport, for a CLI that cannot reach the port. The environment and the
	// discovery files name a port on which no program listens, so only the command is left.
	step(t, "stdio", func(t *testing.T) {
		env := e.env()
		for i, kv := range env {
			if strings.HasPrefix(kv, "GEMINI_CLI_IDE_SERVER_PORT=") {
				env[i] = "GEMINI_CLI_IDE_SERVER_PORT=1"
			}
		}
		empty := filepath.Join(w.home, "empty")
		systest.MakeDir(t, empty)
		two = w.gemini(current, append(env, "TMPDIR="+empty, "TERM_PROGRAM=sublime")) // without it the CLI detects no editor
		two.ideStatus("Connected to")
		if all := e.agents(t); len(all) != 2 || all[0].Transport != "stdio" && all[1].Transport != "stdio" {
			t.Fatalf("connected: %+v, want one client on stdio", all)
		}
		path := w.file("stdio.txt", "one\n")
		e.accept(proposed(two, e, "stdio.txt"), "one\nover stdio\n")
		two.expect(changedFile("stdio.txt"))
		w.wantFile(path, "one\nover stdio\n")
	})

	// Trap 1: closeDiff returns JSON. With bare text the CLI would lose the edits
	// that the user made before the yes in the terminal, and it would parse text
	// that happens to be a JSON object with a content key.
	// Trap 2: a diffRejected sent when the CLI closes a diff would turn the user's
	// yes into a rejection. Trap 3: the CLI sends suppressNotification, which the
	// specification does not mention.
	for name, edited := range map[string]string{"typed.txt": "one\nmine\n", "json.txt": `{"content": "not this"}` + "\n"} {
		step(t, "traps 1 to 3, "+name, func(t *testing.T) {
			path := w.file(name, "one\n")
			d := proposed(cli, e, name)
			e.leave(d.ID, edited) // typed a moment ago, not yet sent
			cli.keys("1")
			if c := e.closeOf(d.ID); c.Reason != editor.ReasonClosed {
				t.Errorf("diff/close said %+v", c)
			}
			cli.expect(changedFile(name))
			w.wantFile(path, edited)
		})
	}
	step(t, "no in the terminal", func(t *testing.T) {
		path := w.file("no.txt", "one\n")
		d := proposed(cli, e, "no.txt")
		cli.keys("\x1b")
		e.closeOf(d.ID)
		w.wantFile(path, "one\n")
		cli.expect("Request cancelled")
		cli.expect(ready)
	})
	// Trap 4, for files that cannot be displayed: the CLI took the error for its
	// own bug ("CRITICAL: Unhandled Promise Rejection"), and the yes in its
	// terminal wrote nothing.
	for name, old := range map[string]string{"latin1.py": "# caf\xe9\nx = 1\n", "binary": "a\x00b\n"} {
		step(t, "trap 4, "+name, func(t *testing.T) {
			path := w.file(name, old)
			cli.prompt("change " + name)
			cli.expect(asks)
			if text := message(e, path); !strings.Contains(text, "Answer in the terminal") {
				t.Errorf("the user reads %q", text)
			}
			cli.keys("1")
			cli.expect(changedFile(name))
			w.wantFile(path, proposals[name].text)
		})
	}
	// Trap 5: the CLI treats empty content as missing and writes its own proposal.
	step(t, "trap 5", func(t *testing.T) {
		path := w.file("empty.txt", "one\n")
		d := proposed(cli, e, "empty.txt")
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: ""})
		if err != nil || res.Status != editor.StatusRefused || res.Message == "" {
			t.Errorf("accept of an empty text = %+v, %v; want a warning", res, err)
		}
		w.wantFile(path, "one\n")
		e.accept(d, "rest\n")
		cli.expect(changedFile("empty.txt"))
		w.wantFile(path, "rest\n")
	})
	// Trap 7, line endings: the CLI proposes LF for a CRLF file and restores CRLF.
	for _, test := range []struct{ name, before, accepted, want string }{
		{"crlf.txt", "one\r\ntwo\r\n", "one\ntwo!\n", "one\r\ntwo!\r\n"},
		{"bom.txt", "\uFEFFone\n", "two!\n", "\uFEFFtwo!\n"},
		{"no-end.txt", "one", "two!", "two!"},
	} {
		step(t, "trap 7, "+test.name, func(t *testing.T) {
			path := w.file(test.name, test.before)
			e.accept(proposed(cli, e, test.name), test.accepted)
			cli.expect(changedFile(test.name))
			w.wantFile(path, test.want)
		})
	}
	// The CLI overwrites the current contents of the file, so the user decides
	// whether it may.
	step(t, "changed on disk", func(t *testing.T) {
		path := w.file("conflict.txt", "one\n")
		d := proposed(cli, e, "conflict.txt")
		const theirs = "one, and another program's line\n"
		w.file("conflict.txt", theirs)
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Text()})
		if err != nil || res.Status != editor.StatusConflict || res.Disk != theirs {
			t.Fatalf("accept = %+v, %v; want a conflict with the file's text", res, err)
		}
		w.wantFile(path, theirs)
		if res, err = e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: d.Text(), Overwrite: res.Version}); err != nil || res.Status != editor.StatusAccepted {
			t.Fatalf("accept again = %+v, %v", res, err)
		}
		cli.expect(changedFile("conflict.txt"))
		w.wantFile(path, "two\n")
	})
	// Trap 8, without a trace: after one Ctrl-C the CLI has cancelled the change
	// and continues. It sends nothing, not even with the next prompt, and ignores
	// the accept. The user read that the change was accepted.
	step(t, "trap 8, cancelled", func(t *testing.T) {
		path := w.file("cancelled.txt", "one\n")
		d := proposed(cli, e, "cancelled.txt")
		cli.keys("\x03")
		cli.expect("Request cancelled")
		e.accept(d, "two, edited\n")
		e.waitState(d, editor.StateAccepted)
		if c := e.closeOf(d.ID); c.Reason != editor.ReasonUnwritten {
			t.Errorf("diff/close said %+v", c)
		}
		restore := "pollux journal restore " + d.ID
		if text := message(e, path); !strings.Contains(text, restore) {
			t.Errorf("the user reads %q", text)
		}
		w.wantFile(path, "one\n")
		if out := w.pollux("journal"); !strings.Contains(out, "accepted, not written, edited") || !strings.Contains(out, restore) {
			t.Errorf("the journal says %q", out)
		}
		w.pollux(strings.Fields(restore)[1:]...)
		w.wantFile(path, "two, edited\n")
	})
	// Trap 7: two CLIs change one file, and each receives its own answer. The path
	// in the answer is the one that the CLI sent, with symlinks resolved.
	step(t, "trap 7, two CLIs", func(t *testing.T) {
		path := w.file("both.txt", "one\n")
		d1, d2 := proposed(cli, e, "first"), proposed(two, e, "second")
		e.reject(d2)
		two.expect("Request cancelled")
		two.expect(ready)
		w.wantFile(path, "one\n")
		e.accept(d1, d1.Text())
		cli.expect(changedFile("first"))
		w.wantFile(path, "first\n")
	})
	// Trap 8: when a CLI is killed, only its event stream ends. Pollux keeps the
	// proposal and notifies the user, who can still save the text to the file.
	step(t, "trap 8, killed", func(t *testing.T) {
		other.waitState(orphan, editor.StateOrphaned)
		if text := next(t, "message", other.texts); !strings.Contains(text, "kept") {
			t.Errorf("the user read %q", text)
		}
		res, err := other.Save(w.context(), editor.DiffAccept{ID: orphan.ID, Content: "two, saved\n"})
		if err != nil || res.Status != editor.StatusAccepted {
			t.Fatalf("save = %+v, %v", res, err)
		}
		w.wantFile(orphan.Path, "two, saved\n")
		other.quit()
	})
	// Trap 8: Ctrl-C closes the diff without suppressNotification.
	step(t, "trap 8, interrupt", func(t *testing.T) {
		path := w.file("closed.txt", "one\n")
		d := proposed(two, e, "closed.txt")
		two.keys("\x03")
		two.keys("\x03")
		e.closeOf(d.ID)
		w.wantFile(path, "one\n")
	})
	// After a crash the companion restarts with the same port and token. The user has to run
	// /ide enable, because the CLI does not reconnect automatically.
	step(t, "restart", func(t *testing.T) {
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
		e.kill()
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
		before := e.info
		e = w.edit(func(p *editor.InitializeParams) { p.Settings.Port, p.Settings.Token = before.Port, before.Token })
		if e.info.Port != before.Port || e.info.Token != before.Token {
			t.Errorf("after the restart, the port is %d and was %d", e.info.Port, before.Port)
		}
		cli.prompt("/ide enable")
		cli.expect("Connected to Test Editor")
	})
	// kill -9 of the companion, and of the editor with it, while a diff is open:
	// the journal has the proposal and the edits, and restore writes them.
	step(t, "the companion is killed", func(t *testing.T) {
		path := w.file("crash.txt", "one\n")
		d := proposed(cli, e, "crash.txt")
		if err := e.Edit(d.ID, "two, edited\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Status(w.context()); err != nil {
			t.Fatal(err)
		}
		e.kill()
		if out := w.pollux("journal"); !strings.Contains(out, d.ID) || !strings.Contains(out, "orphaned, edited") {
			t.Errorf("the journal lists %q", out)
		}
		if out := w.pollux("journal", "show", d.ID); out != "two, edited\n" {
			t.Errorf("the journal shows %q", out)
		}
		w.pollux("journal", "restore", d.ID)
		w.wantFile(path, "two, edited\n")
		// Removes the files that the killed one left.
		again := w.edit(nil)
		files, _ := filepath.Glob(filepath.Join(w.tmp(), "gemini", "ide", "*"))
		for _, f := range files {
			data := systest.ReadFile(t, f)
			var got struct{ Port int }
			if json.Unmarshal([]byte(data), &got); got.Port != again.info.Port {
				t.Errorf("%s of the killed companion is left", filepath.Base(f))
			}
		}
	})
	cli.mu.Lock()
	defer cli.mu.Unlock()
	if strings.Contains(cli.text, "CRITICAL") || strings.Contains(cli.text, "Unhandled") {
		t.Error("the CLI reports an internal error")
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

// Trap 6: a companion that exits leaves no CLI waiting. The real one waits in
// TestPageEditsAndAccepts.
func TestTrap6EditorGoneAnswersTheCLI(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"end of input", "SIGTERM", "SIGHUP"} {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, silent)
			path := w.file("f.txt", "one\n")
			e := w.edit(nil)
			c := e.dial()
			if err := c.OpenDiff(w.context(), path, "two\n"); err != nil {
				t.Fatal(err)
			}
			next(t, "diff", e.opened)
			switch way {
			case "end of input":
				e.Client.Close()
			default:
				e.cmd.Process.Signal(signals[way])
			}
			received(t, c, "a rejection", rejected)
			w.wantFile(path, "one\n")
			waitFor(t, "the end of the companion", func() bool { return len(w.left()) == 0 })
			if out := w.pollux("journal"); !strings.Contains(out, "  "+filepath.Base(path)+"  ") {
				t.Errorf("the journal has %q, want the proposal", out)
			}
		})
	}
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
	relaunch := relaunchEnv + "=" // as it starts without Pollux
	if testing.Short() {
		relaunch += "true" // as with pollux run, in half the time
	}
	cli := w.gemini(old, []string{relaunch})
	cli.ideStatus("Connected to Test Editor")
	cli.prompt("change it")
	d := next(t, "diff", e.opened)
	cli.expect(asks)
	e.accept(d, "one\nthree")
	cli.expect(after)
	w.wantFile(path, "one\nthree")
}
