package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// A Target says how to reach a companion.
type Target struct {
	// Socket is the path of the companion's Unix socket, or of one that is forwarded
	// to it.
	Socket string
	// Command, if there is no socket, returns a new command that connects its
	// standard streams to the companion, as `pollux connect` does.
	Command func() *exec.Cmd
	// Errors receives the standard error of the command. If it is nil, the error of
	// [Target.Greet] quotes the end of it.
	Errors *os.File
}

// Via returns commands that the system's shell runs.
func Via(line string) func() *exec.Cmd {
	return func() *exec.Cmd { return sys.Shell(line) }
}

// SSH returns commands that connect to the companion of a directory on another host.
// host is a name that ssh knows, with or without a user; dir may be empty. The words
// in POLLUX_SSH replace ssh. ssh must not ask anything: the agent owns the terminal,
// and each of its connections starts ssh again.
func SSH(host, dir string) func() *exec.Cmd {
	argv := strings.Fields(os.Getenv("POLLUX_SSH"))
	if len(argv) == 0 {
		argv = []string{"ssh"}
	}
	command := "pollux connect"
	if dir != "" {
		command += " --dir " + quote(dir)
	}
	// After -- a host cannot be an option.
	argv = append(argv, "-o", "BatchMode=yes", "-T", "--", host, command)
	return func() *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
}

// quote returns a path as one word for the shell on its host: for a Windows shell if
// it is a Windows path.
func quote(path string) string {
	if paths.IsWindows(path) {
		return `"` + strings.ReplaceAll(path, `"`, "") + `"`
	}
	return termtext.Word(path)
}

// Open connects. On the connection, the agent and the companion exchange messages,
// one on each line.
func (t Target) Open(ctx context.Context) (io.ReadWriteCloser, error) {
	if t.Socket == "" {
		return startCommand(t.Command(), t.Errors)
	}
	conn, err := editor.Dial(ctx, t.Socket)
	if errors.Is(err, editor.ErrForeign) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("no companion answers at %s (%v): is it running, and is this its socket? "+
			"`pollux status --json` shows it", t.Socket, cause(err))
	}
	if _, err := io.WriteString(conn, editor.MCPPreamble); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// cause returns a connection's error without the addresses.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// A Companion describes a companion that answered.
type Companion struct {
	// Editor is the title of its editor.
	Editor string
	// Roots are the roots of its workspace, by their names there; empty if unknown.
	Roots []string
}

// maxTitle limits an editor's title, in bytes.
const maxTitle = 80

// Greet connects as an agent does, and disconnects.
func (t Target) Greet(ctx context.Context, protocol Protocol) (Companion, error) {
	conn, err := t.Open(ctx)
	if err != nil {
		return Companion{}, err
	}
	defer conn.Close()
	title, roots, err := protocol.Greet(ctx, conn)
	if err == nil {
		return Companion{termtext.Line(title, maxTitle), roots}, nil
	}
	why := "the program that answers is not a companion"
	switch {
	case ctx.Err() != nil:
		why = "no answer in time; if it waits for a password, use a key or ssh-agent"
	case strings.Contains(err.Error(), "invalid character"):
		why = "the output is not a companion's; does a startup file of the shell there print something?"
	}
	if c, ok := conn.(*command); ok {
		if text := c.lastErrors(); text != "" {
			why = text
		}
	}
	return Companion{}, fmt.Errorf("no companion answers there: %s", why)
}

// A command is a connection over the standard streams of a child process.
type command struct {
	child     *sys.PipedChild
	stderr    *sys.Tail // nil if standard error goes elsewhere
	closeOnce func() error
}

// startCommand starts a command. Its standard error goes to errs, unless that is nil.
func startCommand(cmd *exec.Cmd, errs *os.File) (*command, error) {
	streams := sys.Stdin | sys.Stdout
	if errs != nil {
		cmd.Stderr = errs
	} else {
		streams |= sys.Stderr
	}
	child, err := sys.StartPiped(cmd, streams)
	if err != nil {
		return nil, err
	}
	c := &command{child: child}
	c.closeOnce = sync.OnceValue(c.end)
	if errs == nil {
		c.stderr = sys.KeepTail(child.Stderr, maxTail)
	}
	return c, nil
}

func (c *command) Read(b []byte) (int, error)  { return c.child.Stdout.Read(b) }
func (c *command) Write(b []byte) (int, error) { return c.child.Stdin.Write(b) }

// Close ends the command and waits for it.
func (c *command) Close() error { return c.closeOnce() }

const (
	// endTimeout limits how long a command may run after its input has ended.
	endTimeout = 2 * time.Second
	// stopTimeout is the time between the signal that asks it to end and the one that
	// kills it.
	stopTimeout = time.Second
	// maxTail limits what is kept of its standard error, in bytes.
	maxTail = 2000
)

func (c *command) end() error {
	c.child.Stdin.Close()
	select {
	case <-c.child.Done():
	case <-time.After(endTimeout):
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
