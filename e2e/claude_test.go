package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/editors/editortest"
	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/systest"
)

// claudeRejected is what Claude Code shows after a rejection, "Rejected" or, in older
// releases, "User rejected".
const claudeRejected = "ejected "

// A screen is a terminal whose program moves the cursor instead of writing spaces.
type screen struct {
	*editortest.Screen
	w *world
}

func (s screen) see(text string) {
	s.w.t.Helper()
	if err := s.Wait(s.w.context(), text); err != nil {
		s.w.t.Fatal(err)
	}
}

// seeBelow waits until the screen shows a text below the last line that has the mark. The
// mark is a prompt: the answers to earlier ones are above it.
func (s screen) seeBelow(mark, text string) {
	s.w.t.Helper()
	waitFor(s.w.t, fmt.Sprintf("%q below %q", text, mark), func() bool {
		shown := s.Text()
		at := strings.LastIndex(shown, mark)
		return at >= 0 && strings.Contains(shown[at:], text)
	})
}

// ask types a line, and sends it when the program has shown it. Before the program reads
// single keys, the terminal would show them, and the program would take the whole line for
// a pasted one.
func (s screen) ask(line string) {
	s.w.t.Helper()
	waitFor(s.w.t, "a program that reads keys", s.ReadsKeys)
	typed := time.Now()
	s.keys(line)
	s.see(line)
	pauseBeforeEnter(typed)
	s.press("Enter")
}

func (s screen) press(keys ...string) {
	s.w.t.Helper()
	if err := s.Keys(keys...); err != nil {
		s.w.t.Fatal(err)
	}
}

// keys types keys as they are.
func (s screen) keys(keys string) {
	s.w.t.Helper()
	if err := s.Type(keys); err != nil {
		s.w.t.Fatal(err)
	}
}

// screen starts a program in a terminal of the usual size.
func (w *world) screen(env []string, argv ...string) screen {
	w.t.Helper()
	return w.screenOf(120, 40, env, argv...)
}

// screenOf starts a program in a terminal.
func (w *world) screenOf(columns, lines int, env []string, argv ...string) screen {
	w.t.Helper()
	dir := systest.ShortDir(w.t)
	s, err := editortest.NewScreen(dir, w.project, append(slices.Clone(w.env), env...), columns, lines, argv...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the screen of %s:\n%s", filepath.Base(argv[0]), s.Text())
		}
		all := append(children(w.t, s.PID), s.PID) // the shell may end before the agent in it
		all = slices.DeleteFunc(all, w.isDaemon)
		s.Close()
		waitEnded(w.t, all...)
	})
	return screen{s, w}
}

// claude starts Claude Code. It asks before it edits a file.
func (w *world) claude(env []string, args ...string) screen {
	w.t.Helper()
	s := w.claudeIn("default", env, args...)
	s.see("? for shortcuts")
	return s
}

// claudeIn starts Claude Code in a permission mode.
func (w *world) claudeIn(mode string, env []string, args ...string) screen {
	w.t.Helper()
	bin, own := w.configure("claude")
	return w.screen(append(env, own...), append([]string{bin, "--permission-mode", mode}, args...)...)
}

// claudeEdits is a model that reads a file and then calls a tool on it.
func claudeEdits(path *string, tool string, args map[string]any) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		switch r.Step {
		case 0:
			return fakemodel.CallTool("Read", map[string]any{"file_path": *path})
		case 1:
			with := map[string]any{"file_path": *path}
			for k, v := range args {
				with[k] = v
			}
			return fakemodel.CallTool(tool, with)
		}
		return fakemodel.Say(after)
	}
}

func (w *world) claudeLocks() []string {
	locks, _ := filepath.Glob(filepath.Join(w.home, ".claude", "ide", "*.lock"))
	return locks
}

// Claude Code, the real one, and a scripted editor.
func TestClaude(t *testing.T) {
	if !isolated(t) {
		return
	}
	t.Run("session", claudeSession)
	t.Run("demo", func(t *testing.T) {
		w := newClaudeWorld(t, nil)
		bin, _ := w.configure("claude")
		path := "PATH=" + filepath.Dir(bin) + string(os.PathListSeparator) + os.Getenv("PATH")
		cli := w.screen([]string{path}, polluxBinary, "demo", "--agent", "claude", "--no-browser")
		cli.see("? for shortcuts")
		cli.see("2 lines selected")
		cli.ask("make it nicer")
		cli.see(`I see greet.py open in the simulated editor, and "def greet(name):" selected in line 4`)
		w.acceptDiff()
		cli.see("Done: the file contains what you accepted.")
		cli.ask("/exit")
		waitGone(t, cli.PID)
		if left := append(w.left(), w.claudeLocks()...); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// A running is a companion that `pollux status` lists.
type running struct {
	editor.Status
	Socket string
}

func (w *world) running() (all []running) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.pollux("status", "--json")), &all); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// acceptDiff waits until the only companion has a pending change, and accepts it.
func (w *world) acceptDiff() {
	w.t.Helper()
	var all []running
	waitFor(w.t, "the diff", func() bool {
		all = w.running()
		return len(all) == 1 && len(all[0].Diffs) == 1 && all[0].Diffs[0].State == editor.StateOpen
	})
	self := editor.Implementation{Name: "test", Version: "1"}
	if err := editor.WithClient(w.context(), all[0].Socket, self, func(ctx context.Context, c *editor.Client) error {
		diffs, err := c.Diffs(ctx)
		if err != nil {
			return err
		}
		_, err = c.Accept(ctx, editor.DiffAccept{ID: diffs[0].ID, Content: diffs[0].Text()})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// claudeSession is one session of an agent, because its start takes longer than all of its
// answers.
func claudeSession(t *testing.T) {
	const bom = "\uFEFF"
	edit := fakemodel.Part{Call: "Edit", Args: map[string]any{"old_string": "beta", "new_string": "BETA"}}
	write := fakemodel.Part{Call: "Write", Args: map[string]any{"content": "new\n"}}
	lines := fakemodel.Part{Call: "Write", Args: map[string]any{"content": "a\nb\n"}}
	// What Claude Code writes, byte for byte, after an accept with and without an edit.
	accepted := []struct {
		name         string
		call         fakemodel.Part
		before       string
		proposed     string // as the editor sees it
		answer, want string
	}{
		{"edit.txt", edit, "alpha\nbeta\n", "alpha\nBETA\n", "alpha\nBETA\n", "alpha\nBETA\n"},
		{"edit-crlf.txt", edit, "alpha\r\nbeta\r\n", "alpha\nBETA\n", "alpha\nBETA\n", "alpha\r\nBETA\r\n"},
		{"edit-bom.txt", edit, bom + "beta\n", bom + "BETA\n", bom + "BETA\n", bom + "BETA\n"},
		{"write.txt", write, "old\n", "new\n", "new\nmine\n", "new\nmine\n"},
		// As after a yes in the terminal.
		{"write-crlf.txt", lines, "a\r\n", "a\nb\n", "a\nb\n", "a\nb\n"},
		{"edit-no-end.txt", edit, "alpha\nbeta", "alpha\nBETA", "mine", "mine"},
		{"edit-crlf-edited.txt", edit, "alpha\r\nbeta\r\n", "alpha\nBETA\n", "mine\nBETA\n", "mine\r\nBETA\r\n"},
		{"edit-bom-edited.txt", edit, bom + "beta\n", bom + "BETA\n", "mine\n", bom + "mine\n"}, // without it
		{"write-crlf-edited.txt", lines, "a\r\n", "a\nb\n", "a\nmine\n", "a\r\nmine\r\n"},
		{"new/folder.txt", write, "", "new\n", "mine\n", "mine\n"},
		{"emptied.txt", write, "old\n", "new\n", "", ""},
	}
	if testing.Short() { // the last ones
		accepted = accepted[5:]
	}
	calls := make(map[string]fakemodel.Part)
	for _, name := range []string{"terminal", "old", "theirs", "shared", "again", "both", "kept", "ends"} {
		calls[name+".txt"] = write
	}
	var w *world
	// with returns the calls that read a file and change it.
	with := func(name string, call fakemodel.Part) (read, change fakemodel.Part) {
		file := map[string]any{"file_path": filepath.Join(w.project, filepath.FromSlash(name))}
		call.Args = maps.Clone(call.Args)
		maps.Copy(call.Args, file)
		return fakemodel.Part{Call: "Read", Args: file}, call
	}
	one := changes(func(name string) []fakemodel.Part {
		call, ok := calls[name]
		if !ok {
			return nil
		}
		read, change := with(name, call)
		return []fakemodel.Part{read, change}
	})
	w = newClaudeWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if !strings.Contains(r.Prompt, "change bytes") {
			return one(r)
		}
		var reads, all []fakemodel.Part
		for _, test := range accepted {
			read, change := with(test.name, test.call)
			reads, all = append(reads, read), append(all, change)
		}
		switch r.Step {
		case 0:
			return fakemodel.Reply{Parts: reads}
		case 1:
			return fakemodel.Reply{Parts: all}
		}
		return fakemodel.Say(changedFile("bytes"))
	})
	path := w.file("a.txt", "alpha\nbeta\ngamma\n")
	e := w.edit(nil)
	e.show(editor.File{
		Path: path, Active: true, Cursor: &editor.Cursor{Line: 3, Character: 1}, Selection: "beta\ngamma",
		Range: &editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 3, Character: 6}},
	})
	w.writeHome(".claude/settings.json", manual)
	cli := w.claude(e.env())
	(&patient{world: w, editor: e, dir: w.project, bin: filepath.Dir(program(t, "claude")), env: e.env()}).wantClaude()
	proposed := func(cli screen, name string) editor.Diff {
		t.Helper()
		cli.ask("change " + name)
		d := next(t, "diff", e.opened)
		if d.Path != filepath.Join(w.project, filepath.FromSlash(name)) {
			t.Fatalf("the diff is %+v, want one of %s", d, name)
		}
		return d
	}

	step(t, "context", func(t *testing.T) {
		cli.see("2 lines selected")
		cli.ask("hello")
		r := w.wantPrompt("hello")
		if all := r.System + r.Text; !strings.Contains(all, "lines 2 to 3 from "+path) || !strings.Contains(all, "beta\ngamma") {
			t.Errorf("the model did not get the selection: %s", all)
		}
		cli.see(after)
	})
	e.usedBy(cli, "front.txt")
	step(t, "terminal", func(t *testing.T) {
		path := w.file("terminal.txt", "alpha\n")
		d := proposed(cli, "terminal.txt")
		cli.seeBelow("change terminal.txt", "Opened changes in")
		cli.seeBelow("change terminal.txt", "1. Yes")
		var c editor.DiffClose
		for ctx := w.context(); c.ID != d.ID; {
			cli.press("Enter") // the dialog drops keys at first
			select {
			case c = <-e.closed:
			case <-time.After(time.Second):
			case <-ctx.Done():
				t.Fatal("the diff was not closed")
			}
		}
		if c.Reason != editor.ReasonClosed {
			t.Errorf("closed: %+v", c)
		}
		cli.see(changedFile("terminal.txt"))
		w.wantFile(path, "new\n")
	})
	step(t, "bytes", func(t *testing.T) {
		for _, test := range accepted {
			if test.before != "" {
				w.file(test.name, test.before)
			}
		}
		cli.ask("change bytes")
		for _, test := range accepted {
			path := filepath.Join(w.project, filepath.FromSlash(test.name))
			d := next(t, "diff", e.opened)
			if d.Path != path || d.Proposed != test.proposed {
				t.Fatalf("the diff is %+v, want %q of %s", d, test.proposed, test.name)
			}
			e.accept(d, test.answer)
			e.wantWritten(d)
			w.wantFile(path, test.want)
		}
		cli.see(changedFile("bytes"))
	})
	// The agent takes an accept of the old text for a rejection.
	step(t, "the old text", func(t *testing.T) {
		path := w.file("old.txt", "old\n")
		d := proposed(cli, "old.txt")
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "old\n"})
		if err != nil || res.Status != editor.StatusRefused || !strings.Contains(res.Message, "reject the change") {
			t.Errorf("%+v, %v", res, err)
		}
		e.reject(d)
		cli.seeBelow("change old.txt", claudeRejected)
		w.wantFile(path, "old\n")
	})
	// The agent does not overwrite a file that has changed since it read it.
	step(t, "changed on disk", func(t *testing.T) {
		path := w.file("theirs.txt", "old\n")
		d := proposed(cli, "theirs.txt")
		w.file("theirs.txt", "theirs\n")
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"})
		if err != nil || res.Status != editor.StatusConflict {
			t.Fatalf("%+v, %v", res, err)
		}
		res, err = e.Accept(w.context(), editor.DiffAccept{ID: d.ID, Content: "mine\n", Overwrite: res.Version})
		if err != nil || res.Status != editor.StatusAccepted {
			t.Fatalf("%+v, %v", res, err)
		}
		if c := e.closeOf(d.ID); c.Reason != editor.ReasonUnwritten {
			t.Errorf("closed: %+v", c)
		}
		for text := ""; !strings.Contains(text, path) || !strings.Contains(text, "pollux journal restore"); {
			text = next(t, "message", e.texts)
		}
		w.wantFile(path, "theirs\n")
		cli.see(changedFile("theirs.txt"))
	})
	// Another agent, Gemini CLI, which the test plays, proposes a change to the same file. Each
	// change names its agent, and the second accept says that the file has changed.
	step(t, "two agents on one file", func(t *testing.T) {
		path := w.file("shared.txt", "old\n")
		first := proposed(cli, "shared.txt")
		gemini := e.dial()
		if err := gemini.OpenDiff(w.context(), path, "gemini\n"); err != nil {
			t.Fatal(err)
		}
		second := next(t, "Gemini CLI's diff", e.opened)
		if first.Agent != "Claude Code" || second.Agent != "Gemini CLI" || second.Path != path {
			t.Errorf("the diffs are %+v and %+v", first, second)
		}
		e.accept(first, first.Text())
		cli.see(changedFile("shared.txt"))
		w.wantFile(path, "new\n")
		res, err := e.Accept(w.context(), editor.DiffAccept{ID: second.ID, Content: second.Text()})
		if err != nil || res.Status != editor.StatusConflict || res.Disk != "new\n" {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := e.Accept(w.context(), editor.DiffAccept{ID: second.ID, Content: "both\n", Overwrite: res.Version}); err != nil {
			t.Fatal(err)
		}
		wantSaved(t, gemini, path, "both\n")
	})
	// A companion that restarts has the same port and token, and the agent comes back.
	step(t, "restart", func(t *testing.T) {
		path := w.file("again.txt", "old\n")
		e.kill()
		e = w.edit(nil)
		e.usedBy(cli, "back.txt")
		e.accept(proposed(cli, "again.txt"), "mine\n")
		cli.see(changedFile("again.txt"))
		w.wantFile(path, "mine\n")
	})
	// A prompt of one agent, which closes its diffs, leaves the other's alone.
	two := w.claude(e.env())
	step(t, "two agents", func(t *testing.T) {
		path := w.file("both.txt", "old\n")
		e.usedBy(two, "two.txt")
		d := proposed(cli, "both.txt")
		two.ask("hello")
		two.see(after)
		e.accept(d, d.Proposed)
		cli.see(changedFile("both.txt"))
		w.wantFile(path, "new\n")
	})
	// A killed agent's proposal is kept.
	step(t, "killed", func(t *testing.T) {
		path := w.file("kept.txt", "old\n")
		d := proposed(two, "kept.txt")
		kill(two.PID)
		e.waitState(d, editor.StateOrphaned)
		if res, err := e.Save(w.context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"}); err != nil {
			t.Fatalf("%+v, %v", res, err)
		}
		w.wantFile(path, "mine\n")
	})
	// Another answer to a closed view would be a yes.
	step(t, "the editor ends", func(t *testing.T) {
		path := w.file("ends.txt", "old\n")
		proposed(cli, "ends.txt")
		e.Client.Close()
		cli.seeBelow("change ends.txt", claudeRejected)
		w.wantFile(path, "old\n")
	})
}

// What Claude Code would take for another answer than the user's, and what another user
// could take from it.
func TestClaudeTraps(t *testing.T) {
	if !isolated(t) {
		return
	}
	// With nothing that shows changes, the agent shows them itself.
	t.Run("no view", func(t *testing.T) {
		var path string
		w := newClaudeWorld(t, claudeEdits(&path, "Write", map[string]any{"content": "new\n"}))
		path = w.file("a.txt", "old\n")
		e := w.edit(func(p *editor.InitializeParams) { p.Diff = false })
		cli := w.claude(e.env())
		cli.ask("change it")
		cli.see("Do you want to")
		if text := cli.Text(); !strings.Contains(text, "new") || strings.Contains(text, "Opened changes") {
			t.Errorf("the agent does not show its change:\n%s", text)
		}
		if agents := e.agents(t); len(agents) > 0 || len(w.claudeLocks()) > 0 {
			t.Errorf("agents %v, locks %v", agents, w.claudeLocks())
		}
	})
	t.Run("another user", func(t *testing.T) {
		var w *world
		w = newClaudeWorld(t, func(r fakemodel.Request) fakemodel.Reply { return usesSubagents(w)(r) })
		e, cli := w.claudeInEditor()
		step(t, "two subagents", func(t *testing.T) { claudeSubagents(t, w, e, cli) })
		// Another user takes the port of a killed companion for a moment, and receives the
		// token from the agent. The next companion lets the agent in, and not that user.
		port := w.claudePort()
		e.kill()
		token := w.stealToken(port)
		e = w.edit(nil)
		e.usedBy(cli, "back.txt")
		if got := w.handshake(port, token, thief); got != http.StatusForbidden {
			t.Errorf("the other user gets %d", got)
		}
		if got := w.handshake(port, token, os.Getuid()); got != http.StatusSwitchingProtocols {
			t.Errorf("this user gets %d", got)
		}
		// After a normal end the token is worth nothing, and the agent does not come back.
		port = w.claudePort()
		e.quit()
		token = w.stealToken(port)
		w.edit(nil)
		waitFor(t, "the lock", func() bool { return len(w.claudeLocks()) == 1 })
		next := w.claudePort()
		for _, uid := range []int{thief, os.Getuid()} {
			if got := w.handshake(next, token, uid); got != http.StatusUnauthorized {
				t.Errorf("user %d gets %d after a normal end", uid, got)
			}
		}
	})
}

// usesSubagents is a model that lets two subagents change a.txt and b.txt.
func usesSubagents(w *world) fakemodel.Script {
	edit := func(name string) fakemodel.Part {
		return fakemodel.Part{Call: "Agent", Args: map[string]any{
			"description": name, "prompt": "change " + name, "subagent_type": "general-purpose"}}
	}
	return func(r fakemodel.Request) fakemodel.Reply {
		switch {
		case strings.Contains(r.Prompt, "<task-notification>"):
			return fakemodel.Say("A subagent has ended.")
		case strings.Contains(r.Prompt, "use two subagents") && r.Step == 0:
			return fakemodel.Reply{Parts: []fakemodel.Part{edit("a.txt"), edit("b.txt")}}
		}
		return changes(func(name string) []fakemodel.Part {
			path := filepath.Join(w.project, name)
			return []fakemodel.Part{
				{Call: "Read", Args: map[string]any{"file_path": path}},
				{Call: "Write", Args: map[string]any{"file_path": path, "content": "new\n"}},
			}
		})(r)
	}
}

// Two subagents of Claude Code propose changes at the same time. When the user has decided
// about one, and its subagent ends, the other one still waits for the user.
func claudeSubagents(t *testing.T, w *world, e *plugin, cli screen) {
	w.file("a.txt", "old\n")
	w.file("b.txt", "old\n")
	cli.ask("use two subagents")
	first, second := next(t, "a diff", e.opened), next(t, "another diff", e.opened)
	for _, d := range []editor.Diff{second, first} {
		if len(e.closed) > 0 {
			t.Fatalf("a diff has ended: %+v", next(t, "close", e.closed))
		}
		e.accept(d, "mine\n")
		e.wantWritten(d)
		w.wantFile(d.Path, "mine\n")
		cli.see(`Agent "` + filepath.Base(d.Path) + `" finished`)
	}
}

// claudeInEditor starts a scripted editor, and Claude Code connected to it.
func (w *world) claudeInEditor() (*plugin, screen) {
	w.t.Helper()
	e := w.edit(nil)
	cli := w.claude(e.env())
	e.usedBy(cli, "front.txt")
	return e, cli
}

// thief is a user who has nothing to do with Pollux.
const thief = 12345

const claudeToken = "X-Claude-Code-Ide-Authorization"

// claudePort returns the port in the only lock file.
func (w *world) claudePort() int {
	w.t.Helper()
	locks := claudeide.Find(filepath.Join(w.home, ".claude", "ide"))
	if len(locks) != 1 {
		w.t.Fatalf("%d lock files", len(locks))
	}
	return locks[0].Port
}

// stealToken takes the port of a companion that has ended, as another user, and returns
// the token that Claude Code sends there.
func (w *world) stealToken(port int) (token string) {
	w.t.Helper()
	var l net.Listener
	if err := systest.AsUser(w.t, thief, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	tokens := make(chan string)
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusServiceUnavailable)
		tokens <- r.Header.Get(claudeToken)
	}))
	if token = next(w.t, "token", tokens); token == "" {
		w.t.Fatal("the agent sent no token, so this test proves nothing")
	}
	return token
}

// handshake connects to a companion with a token, as a user, and returns the status.
func (w *world) handshake(port int, token string, uid int) int {
	w.t.Helper()
	var conn net.Conn
	if err := systest.AsUser(w.t, uid, func() (err error) {
		conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequestWithContext(w.context(), "GET", "http://127.0.0.1/", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for key, value := range map[string]string{
		claudeToken: token, "Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		req.Header.Set(key, value)
	}
	if err := req.Write(conn); err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode
}

// usedBy opens a new file in the editor and waits until Claude Code names it. An agent that
// has just connected does not use the companion yet.
func (p *plugin) usedBy(cli screen, name string) {
	p.t.Helper()
	path := cli.w.file(name, "")
	p.show(editor.File{Path: path, Active: true})
	cli.see("In " + name)
}

func newClaudeWorld(t *testing.T, script fakemodel.Script) *world {
	w := newWorld(t, script)
	w.useClaude()
	return w
}

// agents returns the agents that are connected.
func (e *plugin) agents(t *testing.T) []editor.Agent {
	st, err := e.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Clients
}

// In the modes "auto" and "accept edits" Claude Code does not ask, so no diff opens. In
// plan mode it asks, if the model writes in spite of it. It is one agent, whose key changes
// the mode.
func TestClaudeModes(t *testing.T) {
	if !isolated(t) {
		return
	}
	var w *world
	w = newClaudeWorld(t, changes(func(name string) []fakemodel.Part {
		path := filepath.Join(w.project, name)
		read := fakemodel.Part{Call: "Read", Args: map[string]any{"file_path": path}}
		switch name {
		case "acceptEdits.txt", "auto.txt", "plan.txt":
			return []fakemodel.Part{read, {Call: "Write", Args: map[string]any{"file_path": path, "content": "new\n"}}}
		case "ready.txt", "busy.txt":
			return []fakemodel.Part{read, {Call: "Edit", Args: map[string]any{"file_path": path, "old_string": "three", "new_string": "3"}}}
		}
		return nil
	}))
	modes := []struct {
		mode, ready string
		asks        bool
	}{
		{"acceptEdits", "accept edits on", false}, {"plan", "plan mode on", true}, {"auto", "auto mode on", false},
	}
	for _, test := range modes {
		w.file(test.mode+".txt", "old\n")
	}
	w.repository()
	e := w.edit(func(p *editor.InitializeParams) { p.Diagnostics = true })
	report := func(f func(path string) []editor.Diagnostic) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.report = func(p editor.DiagnosticsParams) editor.DiagnosticsResult {
			return editor.DiagnosticsResult{Files: []editor.FileDiagnostics{{Path: p.Path, Diagnostics: f(p.Path)}}}
		}
	}
	report(func(string) []editor.Diagnostic { return nil })
	cli := w.claude(e.env())
	e.usedBy(cli, "front.txt")
	for _, test := range modes {
		cli.press("BTab")
		cli.see(test.ready)
		if test.mode == "acceptEdits" {
			for _, busy := range []bool{false, true} {
				step(t, fmt.Sprintf("diagnostics, busy %v", busy), func(t *testing.T) { diagnosticsWithoutReview(t, w, e, cli, busy) })
			}
			report(func(string) []editor.Diagnostic { return nil })
		}
		step(t, test.mode, func(t *testing.T) {
			path := filepath.Join(w.project, test.mode+".txt")
			cli.ask("change " + test.mode + ".txt")
			if test.asks {
				d := next(t, "diff", e.opened)
				if d.Path != path {
					t.Errorf("the diff is %+v", d)
				}
				e.reject(d)
				cli.seeBelow("change "+test.mode, claudeRejected)
				return
			}
			cli.see(changedFile(test.mode + ".txt"))
			w.wantFile(path, "new\n")
			if len(e.opened) > 0 {
				t.Errorf("a diff opened: %+v", next(t, "diff", e.opened))
			}
			waitFor(t, "the change in the status", func() bool { return strings.Contains(w.pollux("status"), path+"  changed") })
			if err := e.Call(w.context(), editor.MethodOutsideOpen, editor.FilePath{Path: path}, nil); err != nil {
				t.Fatal(err)
			}
			d := next(t, "the change", e.opened)
			if d.Original != "old\n" || d.Text() != "new\n" || d.State != editor.StateOutside {
				t.Errorf("the view shows %+v", d)
			}
			if _, err := e.Save(w.context(), editor.DiffAccept{ID: d.ID, Content: "old\n"}); err != nil {
				t.Error(err)
			}
			w.wantFile(path, "old\n")
		})
	}
}
