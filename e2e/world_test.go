// Package e2e runs the real agents in terminals, and real editors and browsers,
// against the real pollux. Only the models are replaced. scripts/setup.sh installs the CLIs; without
// them the tests are skipped, unless POLLUX_E2E=require.
package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/realagents"
	"pollux/internal/sys/systest"
)

// stepTimeout limits a step of the real CLI on a busy machine.
const stepTimeout = 3 * time.Minute

// The tested releases of the agents.
var (
	current         = realagents.Version("gemini")
	claudeVersion   = realagents.Version("claude")
	codexVersion    = realagents.Version("codex")
	copilotVersion  = realagents.Version("copilot")
	opencodeVersion = realagents.Version("opencode")
	qwenVersion     = realagents.Version("qwen")
)

// old is a release of Gemini CLI that finds its companion by the exact PID.
const old = "0.20.2"

var (
	polluxBinary string
	repo         string
)

func TestMain(m *testing.M) {
	fakecli.Main()
	if socket := os.Getenv(forwardEnv); socket != "" {
		forward(socket)
	}
	if os.Getenv(lintEnv) != "" {
		lint()
	}
	if os.Getenv(onePieceEnv) != "" {
		onePiece()
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "pollux-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		defer func() { endChromium() }()
		if repo, err = filepath.Abs(".."); err != nil {
			panic(err)
		}
		useNode(dir)
		if polluxBinary = os.Getenv("POLLUX_BINARY"); polluxBinary != "" {
			return m.Run() // without Go, in scripts/newer-editors.sh
		}
		polluxBinary = filepath.Join(dir, "pollux")
		args := []string{"build", "-ldflags=-s -w", "-o", polluxBinary} // smaller: a test packs it
		if raceEnabled() {
			args = append(args, "-race")
			os.Setenv("GORACE", "atexit_sleep_ms=10")
		}
		build := exec.Command("go", append(args, "pollux")...)
		build.Dir = repo
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		return m.Run()
	}())
}

// machinePath is the PATH of this machine, without the Node.js of [useNode].
var machinePath = os.Getenv("PATH")

// useNode puts the Node.js 22 that scripts/setup.sh installs first in the PATH. With it,
// all CLIs of the tests share a cache of compiled code in dir, as a user's CLIs share
// one below ~/.cache. This saves a quarter of each start of Gemini CLI.
func useNode(dir string) {
	bin := realagents.NodeDir(filepath.Join(repo, ".cache"))
	if _, err := os.Stat(bin); err == nil {
		first := bin + string(os.PathListSeparator)
		machinePath = strings.TrimPrefix(machinePath, first) // [isolated] has started this process
		os.Setenv("PATH", first+machinePath)
	} else if runtime.GOOS != "windows" {
		return
	}
	if _, set := os.LookupEnv("NODE_COMPILE_CACHE"); !set {
		os.Setenv("NODE_COMPILE_CACHE", filepath.Join(dir, "node"))
	}
}

// plain returns the environment of a CLI that does what it does without Pollux and without
// these tests: it runs on this machine's own Node.js, and starts itself again.
func plain() []string { return []string{"PATH=" + machinePath, relaunchEnv + "="} }

// relaunchEnv stops the current CLI from starting itself again with a larger heap.
const relaunchEnv = "GEMINI_CLI_NO_RELAUNCH"

func raceEnabled() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// installed returns the path of something that scripts/setup.sh installs from npm.
func installed(t *testing.T, elem ...string) string {
	t.Helper()
	return cached(t, append([]string{"npm"}, elem...)...)
}

// geminiCLI returns the path of the current CLI.
func geminiCLI(t *testing.T) string {
	t.Helper()
	return program(t, "gemini")
}

// cached returns the path of something that scripts/setup.sh installs.
func cached(t *testing.T, elem ...string) string {
	t.Helper()
	return present(t, filepath.Join(append([]string{repo, ".cache"}, elem...)...))
}

// program returns the path of an agent's program.
func program(t *testing.T, name string) string {
	t.Helper()
	return present(t, realagents.Program(filepath.Join(repo, ".cache"), name))
}

// present returns a path. It skips the test if there is nothing.
func present(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" {
			t.Fatalf("%s is missing: run scripts/setup.sh", path)
		}
		t.Skipf("%s is missing: run scripts/setup.sh", path)
	}
	return path
}

// nodeArch returns this machine's architecture, as npm names it.
func nodeArch() string { return realagents.Arch() }

// A world is one user's machine: a home, a temporary directory, a project, and
// a model that replies by script.
type world struct {
	t       *testing.T
	project string
	home    string
	model   *fakemodel.Server
	env     []string
	path    []string // directories that the editors' PATH begins with
	binary  string   // the pollux that editors start
	runtime string   // the directory of the pool's socket, if bridges use a pool
	wrap    []string // the command that starts it, if any
	fake    string   // the Gemini CLI of bridges, if it is not the real one
}

func newWorld(t *testing.T, script fakemodel.Script) *world {
	t.Helper()
	t.Parallel()
	return newLoneWorld(t, script)
}

// repository makes the project a git repository with its present files.
func (w *world) repository() {
	w.t.Helper()
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "first"},
	} {
		succeed(w.t, exec.Command("git", append([]string{"-C", w.project}, args...)...))
	}
}

// newLoneWorld is newWorld for a test that needs the whole machine: no other runs meanwhile.
func newLoneWorld(t *testing.T, script fakemodel.Script) *world {
	t.Helper()
	root := systest.Dir(t)
	w := &world{t: t, binary: polluxBinary, project: filepath.Join(root, "project"), home: filepath.Join(root, "home")}
	// A process that has not ended yet would write to the home that the test removes.
	t.Cleanup(func() {
		waitEnded(t, w.processes()...)
	})
	tmp := filepath.Join(root, "tmp")
	state := filepath.Join(".local", "state", "pollux")
	for _, d := range []string{w.project, filepath.Join(w.home, ".gemini"), filepath.Join(w.home, state), tmp} {
		systest.MakeDir(t, d)
	}
	// This machine may have other agents too: pollux run does not ask.
	w.writeHome(filepath.Join(state, "agent"), "gemini\n")
	// Nor does it wait for the user to read what it prints.
	w.writeHome(filepath.Join(state, "started"), "claude\nopencode\ncopilot\ncodex\n")
	var err error
	if w.model, err = fakemodel.Start(script); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.model.Close() })
	// A warm process whose settings have changed is started again, so they come first.
	gemini, err := w.user().Configure("gemini")
	if err != nil {
		t.Fatal(err)
	}
	// With a history file, an ending shell would write to the home that the test removes.
	w.env = []string{
		"HOME=" + w.home, "TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp, "PATH=" + os.Getenv("PATH"),
		"TERM=xterm-256color", "COLORTERM=truecolor", "LANG=C.UTF-8", "GORACE=" + os.Getenv("GORACE"),
		"HISTFILE=", "POLLUX_POOL=off",
	}
	w.env = append(w.env, gemini...)
	if runtime.GOOS == "windows" {
		w.env = append(w.env, "USERPROFILE="+w.home, "TEMP="+tmp, "TMP="+tmp,
			"APPDATA="+filepath.Join(w.home, "AppData", "Roaming"), "LOCALAPPDATA="+filepath.Join(w.home, "AppData", "Local"))
	}
	for _, key := range []string{"NODE_COMPILE_CACHE", "COMSPEC", "PATHEXT", "SYSTEMDRIVE", "WINDIR"} {
		if value, set := os.LookupEnv(key); set {
			w.env = append(w.env, key+"="+value)
		}
	}
	return w
}

func (w *world) writeHome(name, text string) {
	w.t.Helper()
	systest.WriteFile(w.t, filepath.Join(w.home, name), text)
}

// replaceHome replaces a part of a file below the home, which must have it.
func (w *world) replaceHome(name, part, with string) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.home, name))
	if err != nil || !strings.Contains(string(data), part) {
		w.t.Fatalf("%s has no %q: %s, %v", name, part, data, err)
	}
	w.writeHome(name, strings.Replace(string(data), part, with, 1))
}

// wantOutside waits until a file has been saved in an editor. Then it changes another one,
// which the status must list as changed outside Pollux, and not the saved one.
func (w *world) wantOutside(saved, begin, other, text string) {
	w.t.Helper()
	waitFor(w.t, "the saved file", func() bool {
		now, _ := os.ReadFile(saved)
		return strings.HasPrefix(string(now), begin)
	})
	w.file(filepath.Base(other), text)
	status := ""
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the status was %s", status)
		}
	}()
	// An editor without a plugin starts a program for each save. It may run later than a look.
	waitFor(w.t, "only the change outside Pollux", func() bool {
		status = w.pollux("status")
		return strings.Contains(status, other+"  changed") && !strings.Contains(status, saved)
	})
}

// user returns the user of the real agents.
func (w *world) user() realagents.User {
	return realagents.User{Cache: filepath.Join(repo, ".cache"), Home: w.home, Project: w.project, Model: w.model.URL}
}

// configure writes an agent's settings. It returns the command, and the variables that lead it to
// the model.
func (w *world) configure(name string) (bin string, env []string) {
	w.t.Helper()
	bin = program(w.t, name)
	env, err := w.user().Configure(name)
	if err != nil {
		w.t.Fatal(err)
	}
	if name == "opencode" { // its catalogue of models takes as long as the rest of its start
		w.writeHome("models.json", "{}")
		w.writeHome(".local/state/opencode/kv.json", `{"animations_enabled": false}`)
		env = append(env, opencodeModels+filepath.Join(w.home, "models.json"))
	}
	return bin, env
}

// opencodeModels is the variable that names opencode's catalogue of models.
const opencodeModels = "OPENCODE_MODELS_PATH="

// file writes a file of the project and returns its path.
func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.project, name)
	systest.WriteFile(w.t, path, text)
	return path
}

func (w *world) wantFile(path, want string) {
	w.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		w.t.Errorf("%s holds %q, %v; want %q", filepath.Base(path), got, err, want)
	}
}

// request waits for the first request to the model that fits.
func (w *world) request(fits func(fakemodel.Request) bool) fakemodel.Request {
	w.t.Helper()
	r, err := w.model.Wait(w.context(), fits)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// prompted waits for the first request with a text in its prompt.
func (w *world) prompted(text string) fakemodel.Request {
	w.t.Helper()
	return w.request(func(r fakemodel.Request) bool { return strings.Contains(r.Prompt, text) })
}

// wantPrompt waits for the first request with a text in any of its messages.
func (w *world) wantPrompt(text string) fakemodel.Request {
	w.t.Helper()
	return w.request(func(r fakemodel.Request) bool { return strings.Contains(r.Text, text) })
}

// pollux runs a command to its end and returns what it printed.
func (w *world) pollux(args ...string) string {
	w.t.Helper()
	cmd := exec.Command(polluxBinary, args...)
	cmd.Env, cmd.Dir = w.env, w.project
	return succeed(w.t, cmd)
}

// A plugin is a scripted editor plugin: it starts `pollux ide` and uses the
// editor protocol as a real plugin does.
type plugin struct {
	*editor.Client
	t      *testing.T
	cmd    *exec.Cmd
	info   editor.InitializeResult
	opened chan editor.Diff
	closed chan editor.DiffClose
	events chan editor.DiffChange
	texts  chan string // messages for the user
	// changed receives the files that another program has written.
	changed chan string

	mu   sync.Mutex
	text map[string]string // the texts in the open diffs
	// report answers diagnostics.
	report func(editor.DiagnosticsParams) editor.DiagnosticsResult
}

// show makes files the ones that are open in the editor.
func (e *plugin) show(files ...editor.File) {
	e.t.Helper()
	if err := e.Update(editor.Snapshot{Files: files}); err != nil {
		e.t.Fatal(err)
	}
}

// accept accepts a diff with a text.
func (e *plugin) accept(d editor.Diff, text string) {
	e.t.Helper()
	e.leave(d.ID, text)
	res, err := e.Accept(e.t.Context(), editor.DiffAccept{ID: d.ID, Content: text})
	if err != nil || res.Status != editor.StatusAccepted {
		e.t.Fatalf("accept %s: %+v, %v", d.Path, res, err)
	}
}

func (e *plugin) reject(d editor.Diff) {
	e.t.Helper()
	if err := e.Reject(e.t.Context(), d.ID); err != nil {
		e.t.Fatal(err)
	}
}

// quit ends the editor, and waits for the end of its companion.
func (e *plugin) quit() {
	e.Client.Close()
	e.cmd.Wait()
}

// kill kills the companion, whose files remain.
func (e *plugin) kill() {
	e.cmd.Process.Kill()
	<-e.Done()
	e.cmd.Wait()
}

func (e *plugin) env() (env []string) {
	for k, v := range e.info.Env {
		env = append(env, k+"="+v)
	}
	return env
}

// closeOf waits until a diff is closed. It skips the ends of earlier ones.
func (e *plugin) closeOf(id string) editor.DiffClose {
	e.t.Helper()
	for {
		if c := next(e.t, "close", e.closed); c.ID == id {
			return c
		}
	}
}

// waitState waits until a diff is in a state.
func (e *plugin) waitState(d editor.Diff, state string) {
	e.t.Helper()
	for c := (editor.DiffChange{}); c.ID != d.ID || c.State != state; {
		c = next(e.t, "diff/changed", e.events)
	}
}

// wantWritten waits until Pollux has found the text of an accepted change in the file. If a
// busy agent writes it late, Pollux first says that it is not written.
func (e *plugin) wantWritten(d editor.Diff) {
	e.t.Helper()
	switch c := e.closeOf(d.ID); c.Reason {
	case editor.ReasonAccepted:
	case editor.ReasonUnwritten:
		for text := ""; !strings.Contains(text, d.Path) || !strings.Contains(text, "was written now, with the text that you accepted"); {
			text = next(e.t, "message", e.texts)
		}
	default:
		e.t.Errorf("closed: %+v", c)
	}
}

// step runs a part of a test whose later parts need it.
func step(t *testing.T, name string, part func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, part) {
		t.FailNow()
	}
}

// changed matches the prompt that asks the model of [changes] for a change.
var changed = regexp.MustCompile(`\bchange (\S+)`)

// changes is a model that makes the calls for the file that the last prompt names, as in
// "change a.txt", and then says [changedFile] of it. It knows no calls for other words: the
// agent adds text to the prompt.
func changes(calls func(name string) []fakemodel.Part) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		all := changed.FindAllStringSubmatch(r.Prompt, -1)
		for _, match := range slices.Backward(all) {
			switch parts := calls(match[1]); {
			case r.Step < len(parts):
				return fakemodel.Reply{Parts: parts[r.Step : r.Step+1]}
			case len(parts) > 0:
				return fakemodel.Say(changedFile(match[1]))
			}
		}
		return fakemodel.Say(after)
	}
}

// changedFile is what the model of [changes] says at the end.
func changedFile(name string) string { return "The change of " + name + " is decided." }

// leave changes the text in the editor's diff view without sending it.
func (e *plugin) leave(id, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text[id] = text
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

// start starts a pollux that uses its standard streams for a protocol.
func (w *world) start(cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	w.t.Helper()
	cmd.Stderr = testWriter{w.t, "pollux " + cmd.Args[1] + ": "}
	return systest.Start(w.t, cmd)
}

// gemini starts the current CLI in the editor's terminal and waits until it is connected. A
// prompt before that would open no diff.
func (e *plugin) gemini(w *world) *terminal {
	e.t.Helper()
	before := len(e.agents(e.t))
	t := w.gemini(current, e.env())
	waitFor(e.t, "the CLI's connection", func() bool { return len(e.agents(e.t)) > before })
	return t
}

// edit starts a plugin. change may alter its introduction.
func (w *world) edit(change func(*editor.InitializeParams)) *plugin {
	w.t.Helper()
	argv := append(slices.Clone(w.wrap), w.binary, "ide", "--log", "info")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = w.env, w.project
	in, out := w.start(cmd)
	e := &plugin{
		t: w.t, cmd: cmd, text: make(map[string]string),
		opened: make(chan editor.Diff, 100), closed: make(chan editor.DiffClose, 100),
		events: make(chan editor.DiffChange, 100), texts: make(chan string, 100),
		changed: make(chan string, 1000),
	}
	e.Client = editor.NewClient(pipes{out, in}, editor.Handler{
		DiffOpen: func(d editor.Diff) error { e.leave(d.ID, d.Text()); e.opened <- d; return nil },
		DiffClose: func(c editor.DiffClose) *string {
			e.closed <- c
			e.mu.Lock()
			defer e.mu.Unlock()
			text := e.text[c.ID]
			return &text
		},
		Diagnostics: func(p editor.DiagnosticsParams) editor.DiagnosticsResult {
			e.mu.Lock()
			report := e.report
			e.mu.Unlock()
			return report(p)
		},
		DiffChanged: func(c editor.DiffChange) { e.events <- c },
		FileChanged: func(c editor.FileChanged) { e.changed <- c.Path },
		Message:     func(m editor.Message) { e.texts <- m.Text },
	})
	w.t.Cleanup(func() {
		e.Client.Close()
		in.Close()
		cmd.Wait()
	})
	p := editor.InitializeParams{
		Client: editor.Implementation{Name: "test", Version: "1"},
		Editor: editor.Info{Name: "testeditor", DisplayName: "Test Editor"},
		Roots:  []string{w.project}, Diff: true,
	}
	if change != nil {
		change(&p)
	}
	info, err := e.Initialize(w.context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	e.info = info
	return e
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), stepTimeout)
	w.t.Cleanup(cancel)
	return ctx
}

type testWriter struct {
	t      *testing.T
	prefix string
}

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s%s", w.prefix, strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}

// next waits for the next value of a channel.
func next[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(stepTimeout):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// A terminal is a program on a pty.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	done chan struct{} // closed when the program has exited
	old  bool          // its menu does not show a command that is typed out

	mu      sync.Mutex
	text    string // the output without control sequences
	from    int    // where the next expect starts
	changed chan struct{}
}

var control = regexp.MustCompile(`\x1b\[[0-9;?<>=!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1bP[^\x1b]*\x1b\\|\x1b[()][0-9A-B]|\x1b[=>78cDEHMNOZ]|\r`)

// begun matches the beginning of a control sequence at the end of the output.
var begun = regexp.MustCompile(`\x1b(\[[0-9;?<>=!]*[ -/]*|\][^\x07\x1b]*\x1b?|P[^\x1b]*\x1b?|[()])?$`)

// run starts a program in a terminal.
func (w *world) run(dir string, env []string, argv ...string) *terminal {
	w.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = append(slices.Clone(w.env), env...), dir
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 200})
	if err != nil {
		w.t.Fatal(err)
	}
	t := &terminal{t: w.t, cmd: cmd, pty: f, done: make(chan struct{}), changed: make(chan struct{})}
	go func() {
		buf := make([]byte, 32<<10)
		raw := "" // the beginning of a control sequence
		for {
			n, err := f.Read(buf)
			raw += string(buf[:n])
			end := len(raw)
			if at := begun.FindStringIndex(raw); at != nil {
				end = at[0]
			}
			if strings.Contains(string(buf[:n]), "\x1b[c") {
				f.WriteString("\x1b[?62c") // answer the query for the terminal type: VT220
			}
			t.mu.Lock()
			t.text += control.ReplaceAllString(raw[:end], "")
			close(t.changed)
			t.changed = make(chan struct{})
			t.mu.Unlock()
			raw = raw[end:]
			if err != nil {
				break
			}
		}
		cmd.Wait()
		close(t.done)
	}()
	w.t.Cleanup(func() {
		systest.KillGroup(cmd.Process.Pid)
		f.Close()
		<-t.done
		if w.t.Failed() {
			t.mu.Lock()
			w.t.Logf("terminal of %s:\n%s", filepath.Base(argv[0]), tail(t.text, 4000))
			t.mu.Unlock()
		}
	})
	return t
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// expect waits until one of the texts appears after the last expected text.
func (t *terminal) expect(texts ...string) (found string) {
	t.t.Helper()
	t.await(fmt.Sprintf("%q", texts), func(rest string) (end int, ok bool) {
		for _, text := range texts {
			if i := strings.Index(rest, text); i >= 0 {
				found = text
				return i + len(text), true
			}
		}
		return 0, false
	})
	return found
}

// await waits until find reports that it has found something in the text after the last
// expected one. The next await starts where find says.
func (t *terminal) await(what string, find func(rest string) (end int, ok bool)) {
	t.t.Helper()
	deadline := time.After(stepTimeout)
	for {
		t.mu.Lock()
		rest, changed := t.text[min(t.from, len(t.text)):], t.changed
		end, ok := find(rest)
		if ok {
			t.from += end
		}
		t.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-t.done:
			t.t.Fatalf("the program exited and never showed %s", what)
		case <-deadline:
			t.t.Fatalf("the terminal never showed %s", what)
		}
	}
}

// keys types keys. Send the Enter after a slash command apart from the text, so
// that its menu opens.
func (t *terminal) keys(keys string) {
	t.t.Helper()
	if _, err := t.pty.WriteString(keys); err != nil {
		t.t.Fatal(err)
	}
}

// typingDelay is a user's pause between two keys. The CLI treats an Enter
// within 30 ms of the last key as a line feed in pasted text.
const typingDelay = 150 * time.Millisecond

// pauseBeforeEnter is a user's pause before Enter. A busy agent, which shows late what was
// typed, gets more time.
func pauseBeforeEnter(typed time.Time) { time.Sleep(typingDelay + 3*time.Since(typed)) }

// commands are the CLI commands that the tests use, with the text that the menu
// shows for each.
var commands = map[string]string{
	"/ide status": "Check status of IDE integration",
	"/ide enable": "Enable IDE integration",
	"/quit":       "Exit the cli",
}

// prompt types a line, and sends it when the CLI has shown it.
func (t *terminal) prompt(line string) {
	t.t.Helper()
	typed := time.Now()
	t.keys(line)
	t.expect(line)
	if help, ok := commands[line]; ok && !t.old {
		t.expect(help) // before its commands are loaded, the CLI sends one as a prompt
	}
	pauseBeforeEnter(typed)
	t.mu.Lock()
	changed := t.changed
	t.mu.Unlock()
	t.keys("\r")
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.keys("\r") // a busy CLI ignores an Enter in the moment after it has shown the line
	}
}

// ideStatus asks the CLI for its connection until it no longer connects. It returns the
// text of want that the CLI shows then.
func (t *terminal) ideStatus(want ...string) (found string) {
	t.t.Helper()
	const connecting = "Connecting..."
	for deadline := time.Now().Add(stepTimeout); time.Now().Before(deadline); {
		t.prompt("/ide status")
		if found = t.expect(append(want, connecting)...); found != connecting {
			return found
		}
	}
	t.t.Fatalf("the CLI has been connecting for %s", stepTimeout)
	return ""
}

const ready = "Type your message"

// gemini starts the CLI as a shell in the editor's terminal does. The current release is
// one process, as with `pollux run`, unless env says otherwise: its second start takes a
// quarter of the time of the first one.
func (w *world) gemini(version string, env []string, args ...string) *terminal {
	w.t.Helper()
	bin := installed(w.t, "gemini-"+version, "node_modules", ".bin", "gemini")
	if version == old {
		env = append(env, "NODE_OPTIONS=--require="+filepath.Join(repo, "e2e", "testdata", "nocontainer.cjs"))
	} else {
		env = append([]string{"REMOTE_CONTAINERS=1", relaunchEnv + "=true"}, env...)
	}
	t := w.run(w.project, env, append([]string{"bash", "-c", `"$0" "$@"; echo "exit code $?"`, bin}, args...)...)
	t.expect(ready)
	if version == old {
		t.old = true
		t.wakeKeyboard()
	}
	return t
}

// wakeKeyboard types a letter and deletes it, until the CLI shows one. The old
// release shows its prompt before it reads from the keyboard, and gives no sign
// when it starts to.
func (t *terminal) wakeKeyboard() {
	t.t.Helper()
	deadline := time.Now().Add(stepTimeout)
	for time.Now().Before(deadline) {
		t.keys("~")
		time.Sleep(2 * typingDelay)
		t.mu.Lock()
		awake := strings.Contains(t.text[t.from:], "> ~")
		t.mu.Unlock()
		if awake {
			t.keys("\x15") // Ctrl-U
			t.expect(ready)
			return
		}
	}
	t.t.Fatal("the CLI never read from the keyboard")
}
