//go:build unix

package systest

import (
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/creack/pty"
)

// runInTerminal runs a command. Without input, its output goes to the terminal, too, and
// runInTerminal returns what the terminal has shown.
func runInTerminal(input *string, argv []string) (shown string, code int, err error) {
	screen, terminal, err := pty.Open()
	if err != nil {
		return "", 0, err
	}
	defer screen.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, os.Stdout, os.Stderr
	if input == nil {
		cmd.Stdout, cmd.Stderr = terminal, terminal
	}
	err = cmd.Start()
	terminal.Close()
	if err != nil {
		return "", 0, err
	}
	printed := make(chan string)
	go func() {
		data, _ := io.ReadAll(screen) // until no process has the terminal
		printed <- string(data)
	}()
	if input != nil {
		const end = "\x04"
		_, err = io.WriteString(screen, *input+end)
	}
	if waitErr := cmd.Wait(); cmd.ProcessState == nil {
		return "", 0, waitErr
	}
	return <-printed, cmd.ProcessState.ExitCode(), err
}

// UseConsole does nothing: see [InTerminal].
func UseConsole() {}
