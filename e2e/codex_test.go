package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// codex starts Codex CLI.
func (w *world) codex() screen {
	w.t.Helper()
	bin, env := w.configure("codex")
	w.t.Cleanup(w.endDaemon)
	s := w.screen(env, bin)
	s.see("scripted default")
	return s
}

// endDaemon ends the daemon that Codex CLI has left for the user of a world.
func (w *world) endDaemon() {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		w.t.Error(err)
	}
	for _, process := range all {
		if pid, _ := strconv.Atoi(filepath.Base(process)); w.isDaemon(pid) {
			kill(pid)
			waitEnded(w.t, pid)
		}
	}
}

// isDaemon reports whether a process is the daemon that Codex CLI starts for the user of a
// world. It does not end with the CLI.
func (w *world) isDaemon(pid int) bool {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return bytes.Contains(args, []byte("\x00app-server\x00")) && bytes.Contains(env, []byte("HOME="+w.home+"\x00"))
}

// codexSocket returns the socket that Codex CLI asks.
func (w *world) codexSocket() string {
	return filepath.Join(filepath.Dir(w.home), "tmp", "codex-ipc", fmt.Sprintf("ipc-%d.sock", os.Getuid()))
}

func newCodexWorld(t *testing.T) *world {
	w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) })
	w.configure("codex") // the companion serves the socket only where somebody uses Codex CLI
	return w
}

// waitOpen waits until the companion shares a number of files.
func (e *plugin) waitOpen(t *testing.T, files int) {
	t.Helper()
	waitFor(t, "the open files", func() bool {
		st, err := e.Status(t.Context())
		return err == nil && st.Files == files
	})
}

// Codex CLI, the real one, and scripted editors.
func TestCodex(t *testing.T) {
	if !isolated(t) {
		return
	}
	// Idle connections and junk of other programs keep nothing from Codex CLI.
	t.Run("context", func(t *testing.T) {
		w := newCodexWorld(t)
		a, b := w.file("a.txt", "alpha\nbeta\ngamma\n"), w.file("b.txt", "b\n")
		e := w.edit(nil)
		waitExists(t, w.codexSocket())
		e.show(
			editor.File{
				Path: a, Active: true, Focused: 3, Cursor: &editor.Cursor{Line: 3, Character: 6}, Selection: "beta\ngamma",
				Range: &editor.Range{Start: editor.Cursor{Line: 2, Character: 1}, End: editor.Cursor{Line: 3, Character: 6}},
			},
			editor.File{Path: b, Focused: 2},
			editor.File{Path: w.file(".env", "SECRET=1\n"), Focused: 1},
		)
		dial := func(junk string) {
			conn, err := net.Dial("unix", w.codexSocket())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			io.WriteString(conn, junk)
		}
		cli := w.codex()
		for range 100 {
			dial("")
		}
		cli.ask("/ide")
		cli.see("IDE context is on")
		for _, junk := range []string{"\x02\x00\x00\x00{}", "\x03\x00\x00\x00abc", "\x00\x00\x00\x00", "\xff\xff\xff\xff"} {
			dial(junk)
		}
		cli.ask("hello")
		cli.see(after)
		got, want := w.prompted("hello").Prompt, "# Context from my IDE setup:\n\n## Active file: a.txt\n\n"+
			"## Active selection of the file:\nbeta\ngamma\n## Open tabs:\n- a.txt: a.txt\n- b.txt: b.txt\n\n"+
			"## My request for Codex:\nhello"
		if strings.TrimSpace(got) != want {
			t.Errorf("the model receives %q, want %q", got, want)
		}
		agents := e.agents(t)
		if len(agents) != 1 || agents[0].Name != "Codex CLI" || !strings.Contains(agents[0].Limits, "no review") {
			t.Errorf("connected: %+v", agents)
		}
		if got := w.pollux("status"); !strings.Contains(got, "agent Codex CLI (pid ") || !strings.Contains(got, ") in "+w.project+", connected") {
			t.Errorf("status prints %s", got)
		}
		waitNote(t, e, "")
		w.sends(t, cli, "Codex CLI", "a.txt lines 2-3")
		kill(cli.PID)
		waitFor(t, "the end of the agent", func() bool { return len(e.agents(t)) == 0 })
		e.quit()
		if _, err := os.Lstat(w.codexSocket()); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	// Codex CLI's socket stays with another program until that ends.
	t.Run("another program", func(t *testing.T) {
		w := newCodexWorld(t)
		systest.MakeDir(t, filepath.Dir(w.codexSocket()))
		other, err := net.Listen("unix", w.codexSocket())
		if err != nil {
			t.Fatal(err)
		}
		e := w.edit(nil)
		waitNote(t, e, "another program (process "+strconv.Itoa(os.Getpid())+") answers Codex CLI's /ide")
		other.Close() // this removes the socket, too
		waitNote(t, e, "")
	})
	// One companion owns the socket, and answers for the other one.
	t.Run("two editors", func(t *testing.T) {
		w := newCodexWorld(t)
		elsewhere := t.TempDir()
		theirs := filepath.Join(elsewhere, "theirs.txt")
		systest.WriteFile(t, theirs, "x\n")
		owner := w.edit(func(p *editor.InitializeParams) { p.Roots = []string{elsewhere} })
		owner.show(editor.File{Path: theirs, Active: true})
		waitExists(t, w.codexSocket())
		e := w.edit(nil)
		e.show(editor.File{Path: w.file("mine.txt", "x\n"), Active: true})
		e.waitOpen(t, 1)
		cli := w.codex()
		cli.ask("/ide")
		cli.see("IDE context is on")
		cli.ask("first")
		if got := w.prompted("first").Prompt; !strings.Contains(got, "Active file: mine.txt") || strings.Contains(got, "theirs") {
			t.Errorf("the model receives %q", got)
		}
		cli.see(after)
		if a, b := owner.agents(t), e.agents(t); len(a) != 0 || len(b) != 1 {
			t.Errorf("the owner has the agents %v, the other one %v", a, b)
		}
		// The other one takes over, even from a killed one.
		owner.kill()
		waitFor(t, "a new owner", func() bool { return listens(w.codexSocket()) })
		cli.ask("second")
		if got := w.prompted("second").Prompt; !strings.Contains(got, "Active file: mine.txt") {
			t.Errorf("the model receives %q", got)
		}
	})
}

// waitNote waits until the companion's status has a note that begins with a text, or no
// note if the text is empty.
func waitNote(t *testing.T, e *plugin, note string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the note %q", note), func() bool {
		st, err := e.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if note == "" {
			return len(st.Notes) == 0
		}
		return len(st.Notes) == 1 && strings.HasPrefix(st.Notes[0], note)
	})
}

func waitExists(t *testing.T, path string) {
	t.Helper()
	waitFor(t, path, func() bool { _, err := os.Lstat(path); return err == nil })
}

// listens reports whether a program accepts connections on a socket.
func listens(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
