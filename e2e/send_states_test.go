package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/fakemodel"
	"pollux/internal/ide/claudeide"
	"pollux/internal/ide/codexide"
	"pollux/internal/ide/copilotide"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/opencode"
	"pollux/internal/inputline"
	"pollux/internal/inputline/inputlinetest"
	"pollux/internal/sys/systest"
)

// recordEnv is set to the size of a terminal, such as 120x40, to make TestSendStates record
// the screens that the unit tests of the packages below internal/ide check.
const recordEnv = "POLLUX_RECORD"

// An asker is an agent in a tmux pane.
type asker struct {
	command, title, release string
	dialect                 string // the package below internal/ide
	find                    inputline.Finder
	install                 func(w *world) (argv, env []string) // nil if [world.configure] is enough
	// What the model calls: a command, a question, and a change to the file $PATH.
	shellCall, askCall, editCall fakemodel.Part
	review                       bool     // Pollux shows its changes
	permission                   string   // a part of its question before a command
	askMode                      []string // the keys that turn on the mode with the question, and off
	search                       string   // the key that opens a search; C-r if empty
	field                        []string // the keys from the question to a text field
	second                       string   // what the line holds after a.txt:2-3 and then b.txt:1
	// The file below the home, and the part of it that makes the agent trust the project, and
	// what takes its place. Codex CLI and opencode ask for no trust here.
	trusts, trust, distrust string
}

func args(key string, value any, more ...any) map[string]any {
	m := map[string]any{key: value}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// choices are the arguments of a tool that asks the user, as most agents take them.
var choices = args("questions", []any{args("id", "colour", "question", "Which colour?", "header", "Colour", "type", "choice",
	"multiSelect", false, "options", []any{args("label", "Red", "description", "r"), args("label", "Blue", "description", "b")})})

var askers = []asker{
	{
		command: "gemini", title: "Gemini CLI", release: current, dialect: "geminiide", find: geminiide.InputLine,
		install: func(w *world) (argv, env []string) {
			return []string{geminiCLI(w.t)}, []string{"REMOTE_CONTAINERS=1", relaunchEnv + "=true"}
		},
		shellCall:  fakemodel.Part{Call: "run_shell_command", Args: args("command", "touch made", "description", "x")},
		permission: "Allow once",
		askCall:    fakemodel.Part{Call: "ask_user", Args: choices},
		editCall:   fakemodel.Part{Call: "write_file", Args: args("file_path", "$PATH", "content", "new\n")}, review: true,
		field:  []string{"Down", "Down"},
		second: "@a.txt lines 2-3 @b.txt line 1",
		trusts: ".gemini/settings.json", trust: `"folderTrust": {"enabled": false}`, distrust: `"folderTrust": {"enabled": true}`,
	},
	{
		command: "qwen", title: "Qwen Code", release: qwenVersion, dialect: "geminiide", find: geminiide.InputLine,
		shellCall:  fakemodel.Part{Call: "run_shell_command", Args: args("command", "touch made", "description", "x", "is_background", false)},
		permission: "Yes, allow once",
		askCall:    fakemodel.Part{Call: "ask_user_question", Args: choices},
		editCall:   fakemodel.Part{Call: "write_file", Args: args("file_path", "$PATH", "content", "new\n")}, review: true,
		field:  []string{"Down", "Down"},
		second: "@a.txt lines 2-3 @b.txt line 1",
		trusts: ".qwen/settings.json", trust: `"security": {`, distrust: `"security": {"folderTrust": {"enabled": true}, `,
	},
	{
		command: "claude", title: "Claude Code", release: claudeVersion, dialect: "claudeide", find: claudeide.ClaudeInputLine,
		install: func(w *world) (argv, env []string) {
			bin, env := w.configure("claude")
			return []string{bin, "--permission-mode", "default"}, env
		},
		shellCall:  fakemodel.Part{Call: "Bash", Args: args("command", "touch made", "description", "x")},
		permission: "Do you want to proceed?",
		askCall:    fakemodel.Part{Call: "AskUserQuestion", Args: choices},
		editCall:   fakemodel.Part{Call: "Write", Args: args("file_path", "$PATH", "content", "new\n")}, review: true,
		field:  []string{"Down", "Down"},
		second: "@a.txt#L2-3 @b.txt#L1",
		trusts: ".claude.json", trust: `"hasTrustDialogAccepted":true`, distrust: `"hasTrustDialogAccepted":false`,
	},
	{
		command: "copilot", title: "Copilot CLI", release: copilotVersion, dialect: "copilotide", find: copilotide.InputLine,
		shellCall:  fakemodel.Part{Call: "bash", Args: args("command", "touch made", "description", "x")},
		permission: "Do you want to run",
		askCall: fakemodel.Part{Call: "ask_user", Args: args("message", "Which colour?", "requestedSchema", args("type", "object",
			"properties", args("name", args("type", "string", "title", "Name")), "required", []string{"name"}))},
		editCall: fakemodel.Part{Call: "create", Args: args("path", "$PATH", "file_text", "new\n")}, review: true,
		second: "@a.txt lines 2-3 @b.txt line 1",
		trusts: ".copilot/config.json", trust: `"trustedFolders"`, distrust: `"otherFolders"`,
	},
	{
		command: "codex", title: "Codex CLI", release: codexVersion, dialect: "codexide", find: codexide.InputLine,
		install: func(w *world) (argv, env []string) {
			bin, env := w.configure("codex")
			w.t.Cleanup(w.endDaemon)
			return []string{bin}, env
		},
		shellCall:  fakemodel.Part{Call: "exec_command", Args: args("cmd", "touch made", "sandbox_permissions", "require_escalated", "justification", "x")},
		permission: "Would you like to run",
		askCall:    fakemodel.Part{Call: "request_user_input", Args: choices},
		editCall:   fakemodel.Part{Call: "exec_command", Args: args("cmd", "echo new > $PATH")},
		askMode:    []string{"BTab"},
		field:      []string{"Tab"},
		second:     "a.txt lines 2-3 b.txt line 1",
	},
	{
		command: "opencode", title: "opencode", release: opencodeVersion, dialect: "opencode", find: opencode.InputLine,
		shellCall:  fakemodel.Part{Call: "bash", Args: args("command", "touch made", "description", "x")},
		permission: "Permission required",
		askCall:    fakemodel.Part{Call: "question", Args: choices},
		editCall:   fakemodel.Part{Call: "write", Args: args("filePath", "$PATH", "content", "new\n")},
		field:      []string{"Down", "Down", "Enter"},
		search:     "C-p",
		second:     "@a.txt#2-3 @b.txt#1",
	},
}

func askerOf(command string) asker {
	return askers[slices.IndexFunc(askers, func(a asker) bool { return a.command == command })]
}

// callFor is a model's answer that calls a tool of an [asker] for a path.
func callFor(part fakemodel.Part, path string) fakemodel.Reply {
	part.Args = maps.Clone(part.Args)
	for k, v := range part.Args {
		if text, ok := v.(string); ok {
			part.Args[k] = strings.ReplaceAll(text, "$PATH", path)
		}
	}
	return fakemodel.Reply{Parts: []fakemodel.Part{part}}
}

// configure writes the agent's settings. It returns the command, and the variables that it needs.
func (a asker) configure(w *world) (argv, env []string) {
	w.t.Helper()
	if a.install != nil {
		return a.install(w)
	}
	bin, env := w.configure(a.command)
	return []string{bin}, env
}

// An interview is a running asker.
type interview struct {
	asker
	screen
	t          *testing.T
	recordings []inputlinetest.Recording
}

// capture returns what the screen shows.
func (i *interview) capture() (s inputline.Screen, captured string) {
	i.t.Helper()
	out, err := exec.Command("tmux", "-u", "-S", i.Socket(), "display-message", "-p", "#{cursor_x} #{cursor_y} #{cursor_flag}",
		";", "capture-pane", "-p", "-e").Output()
	if err != nil {
		i.t.Fatal(err)
	}
	cursor, captured, _ := strings.Cut(string(out), "\n")
	if _, err := fmt.Sscan(cursor, &s.X, &s.Y, &s.Visible); err != nil {
		i.t.Fatalf("%q: %v", cursor, err)
	}
	s.Rows = inputline.Parse(captured)
	return s, captured
}

// line waits until the screen shows all texts, and the input line is as wanted.
func (i *interview) line(state string, want inputline.Line, texts ...string) {
	i.t.Helper()
	var got inputline.Line
	ctx := i.w.context()
	for {
		s, captured := i.capture()
		got = i.find(s)
		all := true
		for _, text := range texts {
			all = all && strings.Contains(i.Text(), text)
		}
		if all && got == want {
			if state != "" {
				i.recordings = append(i.recordings, inputlinetest.Recording{State: state, Screen: s, Captured: captured, Want: want})
			}
			return
		}
		if ctx.Err() != nil {
			i.t.Fatalf("%s: the line is %+v, want %+v and %q on the screen:\n%s", state, got, want, texts, i.Text())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var emptyLine = inputline.Line{Shown: true}

// shellMode types "!" into the empty line. An agent that takes it for a part of what was
// typed or pasted right before shows it as text: then the line is emptied, and it is typed
// again.
func (i *interview) shellMode() {
	i.t.Helper()
	for ctx := i.w.context(); ctx.Err() == nil; {
		time.Sleep(typingDelay)
		i.Type("!")
		var s inputline.Screen
		waitFor(i.t, "the effect of !", func() bool { s, _ = i.capture(); return i.find(s) != emptyLine })
		if !i.find(s).Shown {
			return
		}
		i.press("C-u")
		i.line("", emptyLine)
	}
	i.t.Fatalf("! has no effect:\n%s", i.Text())
}

// never is a question that must not arrive. A shell that read it would leave a file.
const never = "never $(touch RAN)"

// no sends questions and mentions, which must be refused.
func (i *interview) no(state, want string) {
	i.t.Helper()
	i.t.Log(state)
	for _, args := range [][]string{{"a.txt:2", never}, {"a.txt:2"}} {
		if state == "half typed" && len(args) == 1 && (i.command == "claude" || i.command == "opencode") {
			continue // it takes a mention
		}
		before, _ := i.capture()
		i.w.refused(want, append([]string{"--agent", i.command}, args...)...)
		if after, _ := i.capture(); i.find(after) != i.find(before) {
			i.t.Errorf("%s: the input line was %+v, and is %+v:\n%s", state, i.find(before), i.find(after), i.Text())
		}
		if _, err := os.Stat(filepath.Join(i.w.project, "made")); err == nil {
			i.t.Fatalf("%s: the agent's question was answered", state)
		}
	}
}

// pressUntil presses a key until the input line is as wanted: again after each interval.
func (i *interview) pressUntil(key string, interval time.Duration, wanted func(inputline.Line) bool) {
	i.t.Helper()
	for ctx := i.w.context(); ctx.Err() == nil; {
		i.press(key)
		for start := time.Now(); time.Since(start) < interval; time.Sleep(20 * time.Millisecond) {
			if s, _ := i.capture(); wanted(i.find(s)) {
				return
			}
		}
	}
	i.t.Fatalf("%s has no effect:\n%s", key, i.Text())
}

// leave presses Escape until the input line is empty, and waits until the screen rests:
// agents drop what is typed while they cancel.
func (i *interview) leave() {
	i.t.Helper()
	i.pressUntil("Escape", time.Second, func(l inputline.Line) bool { return l == emptyLine })
	i.rest()
}

func (i *interview) rest() {
	i.t.Helper()
	ctx := i.w.context()
	for last, since := i.Text(), time.Now(); time.Since(since) < time.Second; time.Sleep(50 * time.Millisecond) {
		if now := i.Text(); now != last {
			last, since = now, time.Now()
		}
		if ctx.Err() != nil {
			i.t.Fatalf("the screen does not rest:\n%s", i.Text())
		}
	}
}

// end ends the agent with Ctrl-C, and sends questions until the shell has the terminal. The
// shell would run one that arrives in between.
func (i *interview) end() {
	i.t.Helper()
	i.pressUntil("C-c", 300*time.Millisecond, func(l inputline.Line) bool { return !l.Shown })
	for ctx := i.w.context(); ; {
		out, err := i.w.try("send", "--agent", i.command, "a.txt:2", never)
		if err == nil {
			i.t.Errorf("while it ends: %s", out)
		}
		if strings.Contains(out, "bash has the foreground") || strings.Contains(out, "is connected") {
			break
		}
		if ctx.Err() != nil {
			i.t.Fatalf("it does not end: %s", out)
		}
	}
	i.see("shell>")
	i.typeLine("echo $((40+2))over")
	i.see("42over")
	for _, name := range []string{"RAN", "made", "new.txt"} {
		if _, err := os.Stat(filepath.Join(i.w.project, name)); err == nil {
			i.t.Errorf("there is a file %s", name)
		}
	}
}

// Codex CLI may keep the foreground for seconds after its screen has gone: at its first end
// in a home, with `/ide`.
func TestSendWhileItEnds(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newWorld(t, seen)
	a := askerOf("codex")
	i, _ := a.interview(w, 80, 24)
	i.line("", emptyLine)
	i.prompt("/ide")
	i.see("IDE context is on")
	i.prompt("hello")
	i.see("Seen.")
	i.rest() // it asks whether to stop a task
	i.end()
}

// record keeps the recordings, if they are wanted.
func (i *interview) record(name string) {
	i.t.Helper()
	if os.Getenv(recordEnv) == "" {
		return
	}
	file := filepath.Join(repo, "internal", "ide", i.dialect, "testdata", i.command+"-"+name+".txtar")
	systest.MakeDir(i.t, filepath.Dir(file))
	if err := inputlinetest.Write(file, i.title+" "+i.release, i.recordings); err != nil {
		i.t.Fatal(err)
	}
}

// interview starts an agent in a shell.
func (a asker) interview(w *world, columns, lines int) (*interview, *plugin) {
	w.t.Helper()
	w.file("a.txt", "alpha\nbeta\ngamma\n")
	w.file("b.txt", "b\n")
	w.useClaude()
	argv, env := a.configure(w)
	if strings.Contains(w.t.Name(), "TestSendAtStart") {
		w.replaceHome(a.trusts, a.trust, a.distrust)
	}
	e := w.edit(nil)
	i := &interview{asker: a, t: w.t}
	i.screen = w.screen(append(append(e.env(), env...), "PS1=shell> "), "bash", "--norc")
	i.see("shell>")
	i.Resize(columns, lines)
	i.typeLine("clear; " + strings.Join(argv, " "))
	return i, e
}

// The recordings that unit tests check come from the releases that the tests run.
// TestSendStates looks at the screens of another release.
func TestRecordingsAreCurrent(t *testing.T) {
	for _, a := range askers {
		if os.Getenv(strings.ToUpper(a.command)+"_VERSION") != "" {
			continue
		}
		files, err := filepath.Glob(filepath.Join(repo, "internal", "ide", a.dialect, "testdata", a.command+"-*.txtar"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no recordings: %v", a.title, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			release, _, _ := strings.Cut(string(data), "\n")
			if want := a.title + " " + a.release; release != want || err != nil {
				t.Errorf("%s is of %q, %v; record it again for %s (docs/ARCHITECTURE.md)", file, release, err, want)
			}
		}
	}
}

// recorded skips a test of screens, with -short: unit tests check the recordings of it.
func recorded(t *testing.T) {
	if testing.Short() && os.Getenv(recordEnv) == "" {
		t.Skip("the recorded screens are checked below internal/ide")
	}
}

// An agent that asks for trust at its start takes no prompt.
func TestSendAtStart(t *testing.T) {
	recorded(t)
	if !isolated(t) {
		return
	}
	for _, a := range askers {
		if a.trusts == "" {
			continue
		}
		t.Run(a.command, func(t *testing.T) {
			w := newWorld(t, seen)
			i, _ := a.interview(w, 80, 24)
			i.see("rust")
			i.rest()
			i.line("asks for trust", inputline.Line{}, "rust")
			i.no("asks for trust", "tmux pane %0 does not show its input line")
			i.record("trust")
		})
	}
}

// `pollux send` types nothing where the text or Enter would be anything but a prompt.
func TestSendStates(t *testing.T) {
	recorded(t)
	if !isolated(t) {
		return
	}
	columns, lines := 80, 24
	if size := os.Getenv(recordEnv); size != "" {
		if _, err := fmt.Sscanf(size, "%dx%d", &columns, &lines); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range askers {
		t.Run(a.command, func(t *testing.T) {
			var path string
			release := make(chan struct{})
			w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
				last, part := -1, fakemodel.Part{} // a prompt may repeat one that was cancelled
				for word, call := range map[string]fakemodel.Part{"qshell": a.shellCall, "qask": a.askCall, "qedit": a.editCall} {
					if at := strings.LastIndex(r.Prompt, word); at > last {
						last, part = at, call
					}
				}
				if last >= 0 && r.Step == 0 {
					return callFor(part, path)
				}
				if strings.Contains(r.Prompt, "qslow") && r.Step == 0 {
					<-release
				}
				return fakemodel.Say("Seen.")
			})
			t.Cleanup(func() { close(release) })
			path = filepath.Join(w.project, "new.txt")
			i, e := a.interview(w, columns, lines)
			i.line("", emptyLine)
			waitFor(t, "the agent", func() bool { return a.command == "codex" || len(e.agents(t)) == 1 })

			i.line("empty", emptyLine)
			i.Type("\x1b[O")
			i.line("without the focus", emptyLine)
			i.Type("\x1b[I")

			i.Type("half typed")
			i.line("half typed", inputline.Line{Shown: true, Text: "half typed"})
			i.no("half typed", "its input line in tmux pane %0 is not empty")
			i.press("C-u")
			i.line("", emptyLine)

			i.shellMode()
			i.line("shell mode", inputline.Line{})
			i.no("shell mode", "tmux pane %0 does not show its input line")
			i.leave()

			// What Pollux has left may still be there.
			w.pollux("send", "--agent", a.command, "a.txt:2-3")
			w.pollux("send", "--agent", a.command, "b.txt:1")
			i.line("mentions", inputline.Line{Shown: true, Text: a.second})
			w.pollux("send", "--agent", a.command, "a.txt", "first question")
			w.wantPrompt("first question")
			i.see("Seen.")
			i.rest()
			i.line("answered", emptyLine)

			i.prompt("qslow")
			w.wantPrompt("qslow")
			i.line("working", emptyLine)
			w.pollux("send", "--agent", a.command, "a.txt:2", "asked while it works,\n\nin three\nlines")
			release <- struct{}{}
			w.wantPrompt("asked while it works,\n\nin three\nlines")
			i.line("", emptyLine)

			i.prompt("/model")
			i.rest()
			i.line("a list", inputline.Line{})
			i.no("a list", "tmux pane %0 does not show its input line")
			i.leave()

			i.press(cmp.Or(a.search, "C-r"))
			i.line("a search", inputline.Line{})
			i.no("a search", "tmux pane %0 does not show its input line")
			i.leave()

			i.prompt("qshell")
			i.line("asks for permission", inputline.Line{}, "touch made", a.permission)
			i.no("asks for permission", "tmux pane %0 does not show its input line")
			i.leave()

			i.press(a.askMode...)
			i.rest()
			i.prompt("qask")
			i.line("asks the user", inputline.Line{}, "Which colour?")
			i.no("asks the user", "tmux pane %0 does not show its input line")
			for _, key := range a.field {
				i.press(key)
			}
			i.line("asks for text", inputline.Line{}, "Which colour?")
			i.no("asks for text", "tmux pane %0 does not show its input line")
			i.leave()
			i.press(a.askMode...)

			if a.review {
				i.prompt("qedit")
				d := next(t, "diff", e.opened)
				i.see("new.txt")
				i.line("shows a change", inputline.Line{})
				i.w.refused(a.title+" waits for your answer about new.txt", "--agent", a.command, "a.txt", never)
				e.reject(d)
				i.line("", emptyLine)
			}
			i.record(fmt.Sprintf("%dx%d", columns, lines))

			i.end()
			for _, r := range w.model.Requests() {
				if strings.Contains(r.Prompt+fmt.Sprintf("%s", r.Results), never) {
					t.Errorf("the model received %q, %s", r.Prompt, r.Results)
				}
			}
		})
	}
}

// prompt types a prompt, and sends it when the agent has shown it.
func (i *interview) prompt(text string) {
	i.t.Helper()
	i.Type(text)
	i.see(text)
	time.Sleep(typingDelay)
	i.pressUntil("Enter", 20*time.Second, func(l inputline.Line) bool { return !strings.HasPrefix(l.Text, text) }) // it may be busy
}

// typeLine types a line, which may be longer than the screen.
func (i *interview) typeLine(line string) {
	i.t.Helper()
	i.Type(line)
	i.press("Enter")
}

// try runs a command, which may fail.
func (w *world) try(args ...string) (string, error) {
	cmd := exec.Command(polluxBinary, args...)
	cmd.Env, cmd.Dir = w.env, w.project
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// refused runs `pollux send`, which must fail.
func (w *world) refused(want string, args ...string) {
	w.t.Helper()
	out, err := w.try(append([]string{"send"}, args...)...)
	if err == nil || !strings.Contains(out, want) {
		w.t.Errorf("pollux send %q: %v, %s; want %q", args, err, out, want)
	}
}
