package tmux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/term"

	"pollux/internal/editor"
	"pollux/internal/inputline"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(envFake); addr != "" {
		os.Exit(beTmux(addr))
	}
	if log := os.Getenv("TMUX_TEST_LOG"); log != "" && filepath.Base(os.Args[0]) == "codex" {
		beAgent(log)
		return
	}
	os.Exit(m.Run())
}

const prompting = "ready> "

// findLine finds the fake agent's input line.
func findLine(s inputline.Screen) inputline.Line {
	for _, row := range s.Rows {
		if text, ok := strings.CutPrefix(row.Text, strings.TrimSpace(prompting)); ok {
			return inputline.New(text, nil)
		}
	}
	return inputline.Line{}
}

// What the fake agent does with some texts.
const (
	ignored  = "ignored" // nothing
	asks     = "?"       // it shows a question in place of the input line
	ends     = "!"       // its screen goes, but it keeps the foreground
	slowly   = "slowly"  // it shows it late, and takes an Enter soon afterwards for a part of it
	question = "Run rm? 1. Yes 2. No"
)

const pasteBegin, pasteEnd = "\x1b[200~", "\x1b[201~"

// beAgent behaves as an agent: it shows what is typed in its input line. It writes what it
// reads to a file.
func beAgent(log string) {
	state, err := term.MakeRaw(0)
	if err != nil {
		panic(err)
	}
	const erase = "\x1b[2J\x1b[H"
	fmt.Print("\x1b[?2004h" + erase + prompting)
	buf := make([]byte, 4096)
	read, line := "", ""  // since it last looked, and in the input line
	var pasting time.Time // when an Enter is one
	for {
		n, err := os.Stdin.Read(buf)
		if err != nil {
			return
		}
		f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		f.Write(buf[:n])
		f.Close()
		read += string(buf[:n])
		if strings.HasPrefix(pasteBegin, read) || strings.HasPrefix(read, pasteBegin) && !strings.Contains(read, pasteEnd) {
			continue // the rest of a paste follows
		}
		text := strings.NewReplacer(pasteBegin, "", pasteEnd, "").Replace(read)
		read = ""
		switch {
		case strings.Contains(text, "\r") && time.Now().Before(pasting):
			line += "\n"
		case strings.Contains(text, "\r"):
			line = ""
		case text == slowly:
			time.Sleep(time.Second)
			line, pasting = text, time.Now().Add(time.Second)
		case text == ends:
			fmt.Print("\x1b[?2004l" + erase + "bye\r\n")
			term.Restore(0, state)
			select {} // until it is killed
		case text == asks:
			fmt.Print(erase + question)
			continue
		case text != ignored:
			line += text
		}
		shown := line
		if len(line) > 40 {
			shown = "[Pasted text #1]"
		}
		fmt.Print(erase + prompting + strings.ReplaceAll(shown, "\n", " "))
	}
}

// A desk is a tmux server whose first pane has an interactive shell.
type desk struct {
	t                    *testing.T
	dir, socket, bin, in string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no tmux for Windows")
	}
	for _, program := range []string{"tmux", "ps", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(os.Getpid())).Output()
	if err != nil || !strings.HasPrefix(string(out), os.Args[0]) {
		t.Skipf("ps does not show the commands of programs, but what emulates their processor: %q, %v", out, err)
	}
	short := systest.ShortDir(t)
	dir := systest.Dir(t)
	d := &desk{t, dir, filepath.Join(short, "s"), filepath.Join(dir, "codex"), filepath.Join(dir, "typed")}
	self := systest.Self(t)
	systest.Link(t, self, d.bin)
	d.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", dir,
		"-e", "TMUX_TEST_LOG="+d.in, "-e", "PS1=shell$ ", "-e", "HISTFILE=", "bash", "--norc", "--noprofile")
	t.Cleanup(func() { d.tmux("kill-server") })
	d.wait("the shell", func() bool { return strings.Contains(d.screen(), "shell$") })
	return d
}

func (d *desk) tmux(args ...string) string {
	d.t.Helper()
	cmd := command(context.Background(), d.socket, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (d *desk) screen() string { return d.tmux("capture-pane", "-p", "-t", "%0") }

func (d *desk) typed() string {
	data, _ := os.ReadFile(d.in)
	return string(data)
}

func (d *desk) wait(what string, done func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("never saw %s; the screen:\n%s", what, d.screen())
		}
	}
}

// start starts the agent in the shell, and returns its pane.
func (d *desk) start() *Pane {
	d.t.Helper()
	d.tmux("send-keys", "-t", "%0", "./codex", "Enter")
	d.wait("the agent", func() bool { return strings.HasPrefix(d.screen(), strings.TrimSpace(prompting)) })
	p, err := FindPane(d.t.Context(), 0, []string{"gemini", "codex"}, []string{"/nowhere", d.dir})
	if err != nil {
		d.t.Fatal(err)
	}
	if p.Name() != "%0" || p.Command() != "codex" {
		d.t.Errorf("found %+v", p)
	}
	return p
}

// kill sends a signal to the agent in a pane.
func (d *desk) kill(signal string, p *Pane) {
	d.t.Helper()
	if out, err := exec.Command("kill", signal, strconv.Itoa(p.agent)).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %s", err, out)
	}
}

// stop ends the agent, and waits until the shell has the pane again.
func (d *desk) stop(p *Pane) {
	d.t.Helper()
	d.tmux("copy-mode", "-q", "-t", "%0")
	d.tmux("select-pane", "-e", "-t", "%0")
	exec.Command("kill", "-KILL", strconv.Itoa(p.agent)).Run() // it may have ended
	d.wait("the shell", func() bool { return strings.Contains(d.screen(), "shell$") })
	os.Remove(d.in)
}

// until returns a context and a finder of the input line that ends it once the agent has read
// a text.
func (d *desk) until(text string) (context.Context, inputline.Finder) {
	ctx, cancel := context.WithCancel(d.t.Context())
	d.t.Cleanup(cancel)
	return ctx, func(s inputline.Screen) inputline.Line {
		if strings.Contains(d.typed(), text) {
			cancel()
		}
		return findLine(s)
	}
}

func TestFindPane(t *testing.T) {
	d := newDesk(t)
	agent := d.start()
	p, err := FindPane(t.Context(), agent.agent, nil, nil)
	if err != nil || p.Name() != "%0" || p.tty != agent.tty {
		t.Errorf("by its process: %+v, %v", p, err)
	}
	for name, find := range map[string]func() (*Pane, error){
		"another folder":       func() (*Pane, error) { return FindPane(t.Context(), 0, []string{"codex"}, []string{d.dir + "/x"}) },
		"another command":      func() (*Pane, error) { return FindPane(t.Context(), 0, []string{"gemini"}, []string{d.dir}) },
		"a process elsewhere":  func() (*Pane, error) { return FindPane(t.Context(), os.Getpid(), nil, nil) },
		"a process that ended": func() (*Pane, error) { return FindPane(t.Context(), 1<<30, nil, nil) },
	} {
		if p, err := find(); !errors.Is(err, ErrNoPane) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	d.tmux("split-window", "-c", d.dir, "-e", "TMUX_TEST_LOG="+d.in, d.bin)
	second := func() bool { return strings.Contains(d.tmux("capture-pane", "-p", "-t", "%1"), "ready>") }
	d.wait("the second agent", second)
	_, err = FindPane(t.Context(), 0, []string{"codex"}, []string{d.dir})
	systest.WantError(t, err, "codex in %0, codex in %1")
	t.Setenv("PATH", t.TempDir())
	if _, err := FindPane(t.Context(), agent.agent, nil, nil); !errors.Is(err, ErrNoPane) {
		t.Errorf("without tmux: %v", err)
	}
}

func TestPaste(t *testing.T) {
	d := newDesk(t)
	p := d.start()
	long := strings.Repeat("x", 20000)
	for name, tt := range map[string]struct {
		prompt editor.Prompt
		want   string
	}{
		"name":                         {editor.Prompt{Text: "@a.txt "}, "\x1b[200~@a.txt \x1b[201~"},
		"lines, $(touch x), and a tab": {editor.Prompt{Text: "a\n$(touch x)\t'\""}, "\x1b[200~a\n$(touch x)\t'\"\x1b[201~"},
		"question":                     {editor.Prompt{Text: "why", Submit: true}, "\x1b[200~why\x1b[201~\r"},
		"an option as text":            {editor.Prompt{Text: "-x", Submit: true}, "\x1b[200~-x\x1b[201~\r"},
		"more than a screen":           {editor.Prompt{Text: long, Submit: true}, "\x1b[200~" + long + "\x1b[201~\r"},
	} {
		left, err := p.Paste(t.Context(), tt.prompt, findLine, "what an earlier agent had")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if left != tt.prompt.Text && left != "" || (left == "") != tt.prompt.Submit {
			t.Errorf("%s: it left %q", name, left)
		}
		d.wait("the text", func() bool { return len(d.typed()) >= len(tt.want) })
		if got := d.typed(); got != tt.want {
			t.Errorf("%s: typed %q, want %q", name, got, tt.want)
		}
		if left := d.tmux("list-buffers"); left != "" {
			t.Errorf("%s: tmux keeps %q", name, left)
		}
		if left != "" {
			d.tmux("send-keys", "-t", "%0", "Enter")
		}
		d.wait("the empty line", func() bool { return strings.TrimSpace(d.screen()) == strings.TrimSpace(prompting) })
		os.Remove(d.in)
	}
}

// A busy agent shows a pasted text late, and Enter would still become a part of it.
func TestPasteToABusyAgent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.start()
	if _, err := p.Paste(t.Context(), editor.Prompt{Text: slowly, Submit: true}, findLine, ""); err != nil {
		t.Fatal(err)
	}
	d.wait("Enter", func() bool { return strings.HasSuffix(d.typed(), "\r") })
	d.wait("the empty line", func() bool { return !strings.Contains(d.screen(), slowly) })
}

// The input line may hold what Pollux has left there, and nothing else.
func TestPasteAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.start()
	paste := func(prompt editor.Prompt, left, want string) {
		t.Helper()
		if got, err := p.Paste(t.Context(), prompt, findLine, left); err != nil || got != want {
			t.Fatalf("it left %q, %v; want %q", got, err, want)
		}
	}
	paste(editor.Prompt{Text: "@a.txt "}, "", "@a.txt ")
	paste(editor.Prompt{Text: "@b.txt "}, "@a.txt ", "@a.txt @b.txt ")
	_, err := p.Paste(t.Context(), editor.Prompt{Text: "@c.txt "}, findLine, "@b.txt ")
	systest.WantError(t, err, "its input line in tmux pane %0 is not empty")
	paste(editor.Prompt{Text: "@a/longer/path "}, "@a.txt @b.txt ", "@a.txt @b.txt @a/longer/path ")
	// What the line holds already is a part of the new text, and long enough for one.
	ctx, find := d.until(ignored)
	_, err = p.Paste(ctx, editor.Prompt{Text: ignored, Submit: true}, find, "@a.txt @b.txt @a/longer/path ")
	systest.WantError(t, err, "did not press Enter: its input line there does not show the text")
	paste(editor.Prompt{Text: "why", Submit: true}, "@a.txt @b.txt @a/longer/path ", "")
	d.wait("Enter", func() bool { return strings.HasSuffix(d.typed(), "why\x1b[201~\r") })
}

// A mention arrives in another way.
func TestMention(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.start()
	const mention = "m" // one key: more could arrive one by one
	send := func() error { d.tmux("send-keys", "-t", "%0", mention); return nil }
	if left, err := p.Mention(t.Context(), send, findLine, ""); err != nil || left != mention {
		t.Errorf("it left %q, %v", left, err)
	}
	if left, err := p.Mention(t.Context(), send, findLine, mention); err != nil || left != mention+mention {
		t.Errorf("it left %q, %v", left, err)
	}
	if left, err := p.Mention(t.Context(), send, findLine, "other"); err != nil || left != "" {
		t.Errorf("it left %q, %v", left, err)
	}
	refused := errors.New("refused")
	if _, err := p.Mention(t.Context(), func() error { return refused }, findLine, ""); err != refused {
		t.Errorf("the error is %v", err)
	}
	_, err := p.Mention(t.Context(), func() error { return nil }, findLine, "")
	systest.WantError(t, err, "its input line in tmux pane %0 does not show it")
	_, err = p.Mention(t.Context(), send, nil, "")
	systest.WantError(t, err, "tmux pane %0 does not show its input line")
}

// Enter would answer what the agent asks, or be for the next program.
func TestPasteWithoutEnter(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	wantNoEnter := func(ctx context.Context, text string, find inputline.Finder, want string) {
		t.Helper()
		p := d.start()
		_, err := p.Paste(ctx, editor.Prompt{Text: text, Submit: true}, find, "")
		systest.WantError(t, err, "did not press Enter: "+want)
		if got := d.typed(); !strings.Contains(got, text) || strings.Contains(got, "\r") {
			t.Errorf("typed %q", got)
		}
		d.stop(p)
	}
	ctx, find := d.until(ignored)
	wantNoEnter(ctx, ignored, find, "its input line there does not show the text")
	for key, tt := range map[string]struct{ shows, want string }{
		asks: {question, "its input line there does not show the text"},
		ends: {"bye", "it starts or ends in tmux pane %0"},
	} {
		wantNoEnter(t.Context(), "why", func(s inputline.Screen) inputline.Line {
			line := findLine(s)
			if line.Text == "why" {
				d.tmux("send-keys", "-t", "%0", key)
				d.wait(key, func() bool { return strings.Contains(d.screen(), tt.shows) })
			}
			return line
		}, tt.want)
	}
}

// Nothing is pasted where something else could read it.
func TestPasteRefused(t *testing.T) {
	d := newDesk(t)
	shows := func(text string) func() bool { return func() bool { return strings.Contains(d.screen(), text) } }
	for _, tt := range []struct {
		prepare func(p *Pane)
		want    string
	}{
		{func(p *Pane) {
			d.kill("-STOP", p)
			d.wait("the shell", shows("Stopped"))
		}, "bash has the foreground of tmux pane %0"},
		{func(p *Pane) {
			d.kill("-KILL", p)
			d.wait("the shell", shows("Killed"))
		}, "bash has the foreground of tmux pane %0"},
		// The terminal would keep the text, and show it, and the shell run it.
		{func(*Pane) {
			d.tmux("send-keys", "-t", "%0", ends)
			d.wait("the end", shows("bye"))
		}, "it starts or ends in tmux pane %0"},
		{func(*Pane) {
			d.tmux("send-keys", "-t", "%0", asks)
			d.wait("the question", shows(question))
		}, "tmux pane %0 does not show its input line: it may ask you something there"},
		{func(*Pane) {
			d.tmux("send-keys", "-t", "%0", "x")
			d.wait("the key", shows(prompting+"x"))
		}, "its input line in tmux pane %0 is not empty"},
		{func(*Pane) { d.tmux("copy-mode", "-t", "%0") }, "press q there"},
		{func(*Pane) { d.tmux("select-pane", "-d", "-t", "%0") }, "takes no input"},
	} {
		p := d.start()
		tt.prepare(p)
		typed := d.typed()
		_, err := p.Paste(t.Context(), editor.Prompt{Text: "touch x", Submit: true}, findLine, "")
		systest.WantError(t, err, tt.want)
		if left := d.tmux("list-buffers"); left != "" || d.typed() != typed || strings.Contains(d.screen(), "touch") {
			t.Errorf("%s: typed %q, tmux keeps %q; the screen:\n%s", tt.want, d.typed(), left, d.screen())
		}
		d.stop(p)
	}
	p := d.start()
	d.tmux("new-window")
	d.tmux("kill-pane", "-t", "%0")
	_, err := p.Paste(t.Context(), editor.Prompt{Text: "touch x", Submit: true}, findLine, "")
	systest.WantError(t, err, "tmux pane %0 has gone")
	if left := d.tmux("list-buffers"); left != "" {
		t.Errorf("tmux keeps %q", left)
	}
}

func TestCommandOf(t *testing.T) {
	commands := []string{"gemini", "codex"}
	for args, want := range map[string]string{
		"codex":                    "codex",
		"/usr/bin/codex resume":    "codex",
		"node /x/.bin/gemini -m y": "gemini",
		"/usr/bin/node --no-warnings=DEP0040 --max-old-space-size=1 /x/gemini": "gemini",
		"bash /x/codex": "",
		"vim codex":     "",
		"node":          "",
		"node -e 1":     "",
		"":              "",
	} {
		if got := commandOf(args, commands); got != want {
			t.Errorf("%q is %q, want %q", args, got, want)
		}
	}
}

// If ps is only too slow, the error does not say to install it.
func TestProcessesFail(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for want, ctx := range map[string]context.Context{"try again": late, "install procps": t.Context()} {
		if _, err := processes(ctx); err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := FindPane(late, os.Getpid(), nil, nil); !errors.Is(err, errLate) {
		t.Errorf("the pane: %v", err)
	}
}

func TestParseProcesses(t *testing.T) {
	got := parseProcesses("    1     1    -1 ?        /sbin/init\n   20  20   25 pts/3 -bash\nx y z ? w\n 25 25 25 pts/3   node  /x/gemini -p\n\n")
	want := []process{{1, 1, -1, "?", "/sbin/init"}, {20, 20, 25, "pts/3", "-bash"}, {25, 25, 25, "pts/3", "node /x/gemini -p"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got[0].foreground() || got[1].foreground() || !got[2].foreground() {
		t.Error("the foreground is wrong")
	}
}
