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

// unseen is a text that the agent ignores, as in a dialog.
const unseen = "unseen"

// again is a question about which the agent asks something. It shows the question above
// that, and ignores other text until Enter.
const again = "asked again"

const pasteBegin, pasteEnd = "\x1b[200~", "\x1b[201~"

// beAgent behaves as an agent: it shows that its input line is empty, until something is
// typed. It writes what it reads to a file.
func beAgent(log string) {
	if _, err := term.MakeRaw(0); err != nil {
		panic(err)
	}
	const erase = "\x1b[2J\x1b[H"
	fmt.Print("\x1b[?2004h" + erase + prompting)
	buf := make([]byte, 4096)
	asked, asks := false, false
	read := "" // since it last looked
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
		entered := strings.Contains(read, "\r")
		text := strings.NewReplacer(pasteBegin, "", pasteEnd, "", "\n", "\r\n").Replace(read)
		read = ""
		switch {
		case entered:
			if asks = asked; asks {
				fmt.Print(erase + "> " + again + "\r\nRun rm? 1. Yes 2. No")
			} else {
				fmt.Print(erase + prompting)
			}
		case asks: // it ignores the text
		case text == again:
			asked = true
			fmt.Print(erase + "typed " + text)
		case text == unseen:
			fmt.Print(erase + "typed")
		default:
			fmt.Print(erase + "typed " + text[:min(len(text), 40)])
		}
	}
}

func needTmux(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no tmux for Windows")
	}
}

// A desk is a tmux server whose first pane has an interactive shell.
type desk struct {
	t                    *testing.T
	dir, socket, bin, in string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	needTmux(t)
	for _, program := range []string{"tmux", "ps", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(os.Getpid())).Output()
	if err != nil || !strings.HasPrefix(string(out), os.Args[0]) {
		t.Skipf("ps does not show the commands of programs, but what emulates their processor: %q, %v", out, err)
	}
	short, err := os.MkdirTemp("", "px") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t, dir, filepath.Join(short, "s"), filepath.Join(dir, "codex"), filepath.Join(dir, "typed")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, d.bin); err != nil {
		t.Fatal(err)
	}
	d.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", dir,
		"-e", "TMUX_TEST_LOG="+d.in, "-e", "PS1=shell$ ", "bash", "--norc", "--noprofile")
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
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
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
	if err == nil || !strings.Contains(err.Error(), "codex in %0, codex in %1") {
		t.Errorf("two agents: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := FindPane(t.Context(), agent.agent, nil, nil); !errors.Is(err, ErrNoPane) {
		t.Errorf("without tmux: %v", err)
	}
}

func TestPaste(t *testing.T) {
	needTmux(t)
	for name, tt := range map[string]struct {
		prompt editor.Prompt
		want   string
	}{
		"name": {prompt: editor.Prompt{Text: "@a.txt ", Ready: "ready>", Empty: true}, want: "\x1b[200~@a.txt \x1b[201~"},
		"lines, $(touch x), and a tab": {
			prompt: editor.Prompt{Text: "a\n$(touch x)\t'\"", Ready: "ready>", Empty: true},
			want:   "\x1b[200~a\n$(touch x)\t'\"\x1b[201~",
		},
		"question":           {prompt: editor.Prompt{Text: "why", Submit: true, Ready: "ready>", Empty: true}, want: "\x1b[200~why\x1b[201~\r"},
		"an unknown screen":  {prompt: editor.Prompt{Text: "why", Submit: true}, want: "\x1b[200~why\x1b[201~\r"},
		"an option as text":  {prompt: editor.Prompt{Text: "-x", Submit: true}, want: "\x1b[200~-x\x1b[201~\r"},
		"more than a screen": {prompt: editor.Prompt{Text: strings.Repeat("x", 20000)}, want: "\x1b[200~" + strings.Repeat("x", 20000) + "\x1b[201~"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			p := d.start()
			if err := p.Paste(t.Context(), tt.prompt); err != nil {
				t.Fatal(err)
			}
			d.wait("the text", func() bool { return len(d.typed()) >= len(tt.want) })
			if got := d.typed(); got != tt.want {
				t.Errorf("typed %q, want %q", got, tt.want)
			}
			if left := d.tmux("list-buffers"); left != "" {
				t.Errorf("tmux keeps %q", left)
			}
		})
	}
}

// Enter would answer a dialog that ignores the text.
func TestPasteUnseen(t *testing.T) {
	d := newDesk(t)
	err := d.start().Paste(t.Context(), editor.Prompt{Text: unseen, Submit: true})
	if err == nil || !strings.Contains(err.Error(), "it has not shown the pasted text yet: press Enter in tmux pane %0") {
		t.Errorf("the error is %v", err)
	}
	if got := d.typed(); strings.Contains(got, "\r") {
		t.Errorf("typed %q", got)
	}
}

// The screen still shows an earlier question like this one, and the agent asks something.
// Enter answered that.
func TestPasteSeenBefore(t *testing.T) {
	d := newDesk(t)
	p := d.start()
	prompt := editor.Prompt{Text: again, Submit: true}
	if err := p.Paste(t.Context(), prompt); err != nil {
		t.Fatal(err)
	}
	d.wait("the agent's question", func() bool { return strings.Contains(d.screen(), "Run rm?") })
	if err := p.Paste(t.Context(), prompt); err == nil || !strings.Contains(err.Error(), "it has not shown the pasted text yet") {
		t.Errorf("the error is %v", err)
	}
	if got := d.typed(); strings.Count(got, "\r") != 1 {
		t.Errorf("typed %q", got)
	}
}

// Nothing is pasted where something else could read it.
func TestPasteRefused(t *testing.T) {
	needTmux(t)
	idle := editor.Prompt{Text: "touch x", Submit: true, Ready: "ready>", Empty: true}
	for name, tt := range map[string]struct {
		prepare func(d *desk, p *Pane)
		prompt  editor.Prompt
		want    string
	}{
		"stopped": {func(d *desk, p *Pane) {
			d.kill("-STOP", p)
			d.wait("the shell", func() bool { return strings.Contains(d.screen(), "Stopped") })
		}, editor.Prompt{Text: "touch x", Submit: true}, "bash has the foreground of tmux pane %0"},
		"ended": {func(d *desk, p *Pane) {
			d.kill("-KILL", p)
			d.wait("the shell", func() bool { return strings.Contains(d.screen(), "Killed") })
		}, editor.Prompt{Text: "touch x", Submit: true}, "bash has the foreground of tmux pane %0"},
		"not empty": {func(d *desk, _ *Pane) {
			d.tmux("send-keys", "-t", "%0", "x")
			d.wait("the key", func() bool { return strings.Contains(d.screen(), "typed") })
		}, idle, "its input line in tmux pane %0 is not empty, or it asks you something"},
		"in copy mode": {func(d *desk, _ *Pane) { d.tmux("copy-mode", "-t", "%0") }, idle, "press q there"},
		"input is off": {func(d *desk, _ *Pane) { d.tmux("select-pane", "-d", "-t", "%0") }, idle, "takes no input"},
		"no pane": {func(d *desk, _ *Pane) {
			d.tmux("new-window")
			d.tmux("kill-pane", "-t", "%0")
		}, idle, "tmux pane %0 has gone"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			p := d.start()
			tt.prepare(d, p)
			typed := d.typed()
			err := p.Paste(t.Context(), tt.prompt)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			if left := d.tmux("list-buffers"); left != "" {
				t.Errorf("tmux keeps %q", left)
			}
			if name != "no pane" && (d.typed() != typed || strings.Contains(d.screen(), "touch")) {
				t.Errorf("typed %q; the screen:\n%s", d.typed(), d.screen())
			}
		})
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
