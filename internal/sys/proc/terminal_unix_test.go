//go:build linux || darwin

package proc

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// A process has the terminal that controls it, also when its streams are elsewhere.
func TestTerminal(t *testing.T) {
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer tty.Close()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	inTerminal := exec.Command("cat", "/dev/fd/3") // until the pipe is closed
	inTerminal.Stdin, inTerminal.ExtraFiles = tty, []*os.File{in}
	inTerminal.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	outside := exec.Command("cat", "/dev/fd/3")
	outside.Stdin, outside.ExtraFiles = tty, []*os.File{in}
	outside.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	want := map[*exec.Cmd]string{inTerminal: strings.TrimPrefix(tty.Name(), "/dev/"), outside: ""}
	for cmd := range want {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	for cmd, name := range want {
		if got := Terminal(cmd.Process.Pid); got != name {
			t.Errorf("the terminal is %q, want %q", got, name)
		}
	}
	out.Close()
	for cmd := range want {
		cmd.Wait()
		if got := Terminal(cmd.Process.Pid); got != "" {
			t.Errorf("a process that has ended is in %q", got)
		}
	}
}

// Single keys arrive only in a terminal that a program has set up so.
func TestReadsKeys(t *testing.T) {
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer tty.Close()
	if ReadsKeys(tty.Name()) {
		t.Error("a new terminal reads single keys")
	}
	state, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if !ReadsKeys(tty.Name()) {
		t.Error("a raw terminal reads lines")
	}
	if err := term.Restore(int(tty.Fd()), state); err != nil {
		t.Fatal(err)
	}
	if ReadsKeys(tty.Name()) || ReadsKeys(os.DevNull) || ReadsKeys(t.TempDir()) || ReadsKeys("/nowhere") {
		t.Error("wrong about a terminal, or about what is none")
	}
}
