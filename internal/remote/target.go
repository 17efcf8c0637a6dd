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
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// A Target says how to reach a companion.
type Target struct {
	// Socket is the path of a Unix socket: the companion's, or one that is
	// forwarded to it.
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
	if isWindows(path) {
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
		return nil, fmt.Errorf("no companion answers at %s (%v): is it running, and is this its socket? `pollux status --json` shows it",
			t.Socket, cause(err))
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
	io.ReadCloser
	in     io.WriteCloser
	child  *sys.Child
	stderr *tail // nil if it goes elsewhere

	closeOnce func() error
}

func startCommand(cmd *exec.Cmd, errs *os.File) (_ *command, err error) {
	c := &command{}
	var files []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				files = append(files, r, w)
			}
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	var errR, errW *os.File
	if errs == nil {
		errR, errW = pipe()
		errs = errW
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errs
		c.child, err = sys.StartChild(cmd)
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	inR.Close()
	outW.Close()
	if errW != nil {
		errW.Close()
		c.stderr = readTail(errR)
	}
	c.ReadCloser, c.in = outR, inW
	c.closeOnce = sync.OnceValue(c.end)
	return c, nil
}

func (c *command) Write(b []byte) (int, error) { return c.in.Write(b) }

const (
	// endTimeout limits how long a command may run after its input has ended.
	endTimeout = 2 * time.Second
	// stopTimeout is the time between the signals that ask it to end and that kill it.
	stopTimeout = time.Second
)

// Close ends the command and waits for it.
func (c *command) Close() error { return c.closeOnce() }

func (c *command) end() error {
	c.in.Close()
	select {
	case <-c.child.Done():
	case <-time.After(endTimeout):
		c.child.Stop(stopTimeout)
	}
	c.ReadCloser.Close()
	if c.stderr != nil {
		c.stderr.close()
	}
	return nil
}

// lastErrors ends the command and returns, in one line, the last that it wrote to
// standard error.
func (c *command) lastErrors() string {
	c.Close()
	if c.stderr == nil {
		return ""
	}
	return termtext.Line(string(c.stderr.text), maxTail)
}

// maxTail limits what is kept of a command's standard error, in bytes.
const maxTail = 2000

// A tail keeps the last bytes that came from a pipe.
type tail struct {
	pipe *os.File
	done chan struct{}
	text []byte // valid when done is closed
}

func readTail(pipe *os.File) *tail {
	t := &tail{pipe: pipe, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		buf := make([]byte, 4096)
		for {
			n, err := pipe.Read(buf)
			t.text = append(t.text, buf[:n]...)
			t.text = t.text[max(0, len(t.text)-maxTail):]
			if err != nil {
				return
			}
		}
	}()
	return t
}

// close waits for the end of the pipe, but not for long: a process that the command
// left behind may hold the pipe open.
func (t *tail) close() {
	select {
	case <-t.done:
	case <-time.After(endTimeout):
	}
	t.pipe.Close()
	<-t.done
}
