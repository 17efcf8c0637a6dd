package remote

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/lazy"
	"pollux/internal/paths"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
)

// Via returns commands that the system's shell runs.
func Via(line string) func() *exec.Cmd {
	return func() *exec.Cmd { return shell.Command(line) }
}

// SSH returns commands that run a command on another host. host is a name that ssh
// knows, with or without a user. The words in POLLUX_SSH replace ssh. ssh must not ask
// anything: an agent or an MCP client owns the terminal, and each connection starts ssh
// again.
func SSH(host, command string) func() *exec.Cmd {
	argv := strings.Fields(os.Getenv("POLLUX_SSH"))
	if len(argv) == 0 {
		argv = []string{"ssh"}
	}
	// After -- a host cannot be an option.
	argv = append(argv, "-o", "BatchMode=yes", "-T", "--", host, command)
	return func() *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
}

// ConnectCommand returns the command that connects its standard streams to the companion
// of a directory; dir may be empty.
func ConnectCommand(dir string) string {
	if dir == "" {
		return "pollux connect"
	}
	return "pollux connect --dir " + quote(dir)
}

// quote returns a path as one word for the shell on its host: for a Windows shell if
// it is a Windows path.
func quote(path string) string {
	if paths.IsWindows(path) {
		path = strings.ReplaceAll(path, `"`, "")
		end := path[len(strings.TrimRight(path, `\`)):] // in front of a quote, two stand for one
		return `"` + path + end + `"`
	}
	return shell.PosixWord(path)
}

const (
	// endTimeout limits how long a command may run after its input or output has ended.
	endTimeout = 2 * time.Second
	// stopTimeout is the time between asking the command to end and killing it.
	stopTimeout = time.Second
	// maxTail limits what is kept of its standard error, in bytes.
	maxTail = 2000
	// exitNotFound is the exit code of shells for an unknown command; that of cmd is
	// exitNotFoundCmd or, as in PowerShell, 1.
	exitNotFound    = 127
	exitNotFoundCmd = 9009
)

// A command is a connection over the standard streams of a child process.
type command struct {
	child      *proc.PipedChild
	stderr     *proc.Tail // nil if standard error goes elsewhere
	endTimeout time.Duration
	ended      atomic.Bool // its output has ended
	closeOnce  func() error
}

// Start starts a command as a connection. Closing the connection ends a running command
// immediately. [NoAnswer] quotes its standard error.
func Start(cmd *exec.Cmd) (io.ReadWriteCloser, error) { return startCommand(cmd, nil, 0) }

// startCommand starts a command. Its standard error goes to errs, unless that is nil.
func startCommand(cmd *exec.Cmd, errs *os.File, endTimeout time.Duration) (io.ReadWriteCloser, error) {
	streams := proc.Stdin | proc.Stdout
	if errs != nil {
		cmd.Stderr = errs
	} else {
		streams |= proc.Stderr
	}
	child, err := proc.StartPiped(cmd, streams)
	if err != nil {
		return nil, err
	}
	c := &command{child: child, endTimeout: endTimeout}
	c.closeOnce = sync.OnceValue(c.end)
	if errs == nil {
		c.stderr = proc.KeepTail(child.Stderr, maxTail)
	}
	return c, nil
}

func (c *command) Read(b []byte) (int, error) {
	n, err := c.child.Stdout.Read(b)
	if err == io.EOF {
		c.ended.Store(true)
	}
	return n, err
}

func (c *command) Write(b []byte) (int, error) { return c.child.Stdin.Write(b) }

// Close ends the command and waits for it.
func (c *command) Close() error { return c.closeOnce() }

func (c *command) end() error {
	c.child.Stdin.Close()
	timeout := c.endTimeout
	if c.ended.Load() {
		timeout = endTimeout // it is about to exit, and may still write to standard error
	}
	select {
	case <-c.child.Done():
	case <-time.After(timeout):
		c.child.Stop(stopTimeout)
	}
	c.child.Stdout.Close()
	if c.stderr != nil {
		c.stderr.Close(endTimeout)
	}
	return nil
}

// lastErrors ends the command and returns, in one line, the end of its standard
// error.
func (c *command) lastErrors() string {
	c.Close()
	if c.stderr == nil {
		return ""
	}
	return termtext.Line(string(c.stderr.Bytes()), maxTail)
}

// quotedName matches the program's name as the shells of Windows quote it, in all languages.
var quotedName = lazy.Regexp(`['"]pollux(\.exe)?['"]`)

// unknownCommand reports whether a shell ended because it does not know pollux. text is the
// end of its standard error, which is in the user's language on Windows.
func unknownCommand(code int, text string) bool {
	switch {
	case code == exitNotFound, code == exitNotFoundCmd, strings.Contains(text, "CommandNotFoundException"),
		strings.Contains(text, "is not recognized as"), strings.Contains(text, "internal or external command"):
		return true
	}
	return code == 1 && quotedName().MatchString(text) && !strings.Contains(text, "pollux: ")
}

// NoAnswer returns the error to show when no program of that kind, such as "companion",
// has answered on a connection. err is the connection's error. It closes the
// connection.
func NoAnswer(ctx context.Context, conn io.ReadWriteCloser, what string, err error) error {
	why := fmt.Sprintf("the program that answers is not a %s", what)
	switch {
	case ctx.Err() != nil:
		why = "no answer in time; if it waits for a password, use a key or ssh-agent"
	case strings.Contains(err.Error(), "invalid character"):
		why = fmt.Sprintf("the output is not a %s's; does a startup file of the shell there print something?", what)
	}
	if c, ok := conn.(*command); ok {
		if text := c.lastErrors(); text != "" {
			why = text
		}
		switch {
		case ctx.Err() != nil:
		case unknownCommand(c.child.ExitCode(), why):
			why += "; install pollux there, in a directory of the PATH that this command has there"
		case strings.Contains(why, "pollux: unknown command"):
			why += "; install the same version of pollux there"
		}
	}
	return fmt.Errorf("no %s answers there: %s", what, why)
}
