package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/adapter"
	"pollux/internal/sys"
)

// A Door is a way to a companion. Open makes a connection on which MCP is
// spoken, one message on a line.
type Door struct {
	// Socket is a unix socket: the companion's own, or what forwards to it.
	Socket string
	// Command, if there is no socket, is run by the system's shell and speaks
	// MCP on its standard streams, as `pollux connect` does on the companion's
	// side.
	Command string
	// Errors is where a command's standard error goes; nil keeps the end of it
	// for the error of [Door.Greet] only.
	Errors *os.File
}

// SSH is the command that reaches the companion of the directory there, on
// another host: a name of ssh's, with a user perhaps. dir may be empty.
// POLLUX_SSH is run in place of ssh, options and all.
func SSH(host, dir string) string {
	ssh := os.Getenv("POLLUX_SSH")
	if ssh == "" {
		ssh = "ssh"
	}
	there := "pollux connect"
	if dir != "" {
		there += " --dir " + quote(dir)
	}
	// -- keeps a host from being an option.
	return ssh + " -T -- " + quote(host) + " " + quote(there)
}

// quote makes one word of the shell's of a text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Open connects.
func (d Door) Open(ctx context.Context) (io.ReadWriteCloser, error) {
	if d.Socket != "" {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", d.Socket)
		if err != nil {
			return nil, fmt.Errorf("no companion answers at %s (%v): is it running, and is this its socket? `pollux status --json` names it", d.Socket, cause(err))
		}
		if _, err := io.WriteString(conn, adapter.MCPPreamble); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
	return startCommand(d.Command, d.Errors)
}

func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// A command is a connection over a child's standard streams.
type command struct {
	io.ReadCloser
	in    io.WriteCloser
	child *sys.Child
	said  *os.File // its standard error, where it is kept
	last  string   // the end of that, once it is closed

	once sync.Once
}

func startCommand(line string, errs *os.File) (_ *command, err error) {
	argv := []string{"sh", "-c", line}
	if runtime.GOOS == "windows" {
		argv = []string{"cmd", "/c", line}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	c := &command{}
	if errs == nil {
		if c.said, err = os.CreateTemp("", "pollux-connect-"); err != nil {
			return nil, err
		}
		os.Remove(c.said.Name()) // where a file that is open can be removed
		errs = c.said
	}
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
	c.ReadCloser, c.in = outR, inW
	return c, nil
}

func (c *command) Write(b []byte) (int, error) { return c.in.Write(b) }

// endWithin is how long a command has to end when its input has.
const endWithin = 2 * time.Second

// Close ends the command.
func (c *command) Close() error {
	c.once.Do(func() {
		c.in.Close()
		select {
		case <-c.child.Done():
		case <-time.After(endWithin):
			c.child.Stop(time.Second)
		}
		c.ReadCloser.Close()
		if c.said != nil {
			c.last = tailOf(c.said)
			c.said.Close()
			os.Remove(c.said.Name())
		}
	})
	return nil
}

// words end the command and are what it has said on standard error last.
func (c *command) words() string {
	c.Close()
	return c.last
}

// maxWords bounds them in bytes.
const maxWords = 2000

func tailOf(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(info.Size(), maxWords))
	n, _ := f.ReadAt(b, info.Size()-int64(len(b)))
	return string(bytes.TrimSpace(b[:n]))
}

// Greet connects as a CLI does and tells what to call the companion's editor.
func (d Door) Greet(ctx context.Context) (editor string, err error) {
	conn, err := d.Open(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	client := mcp.NewClient(&mcp.Implementation{Name: "pollux-connect", Version: "0"}, nil)
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: conn, Writer: conn}, nil)
	if err != nil {
		said := ""
		if c, ok := conn.(*command); ok {
			if w := c.words(); w != "" {
				said = ": " + w
			}
		}
		if ctx.Err() != nil {
			err = errors.New("no answer in time")
		}
		return "", fmt.Errorf("no companion answers there (%v)%s", err, said)
	}
	defer session.Close()
	return session.InitializeResult().ServerInfo.Title, nil
}

// A Front is a door here for a companion there: CLIs come by the command
// `pollux connect --socket`, and each has a connection of its own.
type Front struct {
	// Socket is its path.
	Socket string

	door     Door
	paths    Paths
	listener net.Listener
	cancel   context.CancelFunc
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns map[io.Closer]bool
}

// Listen opens a front in the user's own directory.
func Listen(ctx context.Context, door Door, paths Paths) (*Front, error) {
	dir, err := sys.RuntimeDir()
	if err != nil {
		return nil, err
	}
	prune(dir)
	f := &Front{Socket: filepath.Join(dir, fmt.Sprintf("connect-%d.sock", os.Getpid())), door: door, paths: paths, conns: make(map[io.Closer]bool)}
	os.Remove(f.Socket) // of a killed process that had our PID
	if f.listener, err = net.Listen("unix", f.Socket); err != nil {
		return nil, fmt.Errorf("%w: set POLLUX_RUNTIME_DIR to a short path of your own", err)
	}
	if err := os.Chmod(f.Socket, 0o600); err != nil {
		f.listener.Close()
		return nil, err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.serving.Go(func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.serving.Go(func() { f.serve(ctx, conn) })
		}
	})
	return f, nil
}

// prune removes what killed fronts have left.
func prune(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "connect-*.sock"))
	for _, path := range left {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(path), "connect-%d.sock", &pid); err == nil && !sys.Alive(pid) {
			os.Remove(path)
		}
	}
}

func (f *Front) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if !f.track(conn, true) {
		return
	}
	defer f.track(conn, false)
	first := make([]byte, len(adapter.MCPPreamble))
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != adapter.MCPPreamble {
		return
	}
	door, err := f.door.Open(ctx)
	if err != nil {
		return // the CLI says that it is disconnected
	}
	if !f.track(door, true) {
		door.Close()
		return
	}
	defer f.track(door, false)
	Relay(conn, door, f.paths)
}

// track reports whether the front is still open.
func (f *Front) track(c io.Closer, add bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return false
	}
	if add {
		f.conns[c] = true
	} else {
		delete(f.conns, c)
	}
	return true
}

// Close ends all connections.
func (f *Front) Close() {
	f.cancel()
	f.listener.Close() // removes the file
	f.mu.Lock()
	conns := f.conns
	f.conns = nil
	f.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	f.serving.Wait()
}
