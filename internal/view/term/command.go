package term

import (
	"bytes"
	"io"
	"os/exec"
	"runtime"
	"time"
)

// A command is the user's editor. It starts after Bubble Tea's renderer has stopped.
//
// Bubble Tea asks the renderer to stop, and does not wait for it. If the editor ends first,
// the old renderer stops the ticker that the new one has just started, and the screen stays
// blank: https://github.com/charmbracelet/bubbletea/issues/1778.
type command struct{ *exec.Cmd }

func (c command) SetStdin(r io.Reader)  { c.Stdin = r }
func (c command) SetStdout(w io.Writer) { c.Stdout = w }
func (c command) SetStderr(w io.Writer) { c.Stderr = w }

func (c command) Run() error {
	awaitRenderer()
	return c.Cmd.Run()
}

// awaitRenderer waits, for at most a second, until no goroutine of the renderer is left.
func awaitRenderer() {
	stacks := make([]byte, 1<<20)
	for start := time.Now(); time.Since(start) < time.Second; time.Sleep(time.Millisecond) {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*Program).startRenderer")) {
			return
		}
	}
}
