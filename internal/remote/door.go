package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// A Door is a way to a companion. Open makes a connection on which MCP is
// spoken, one message on a line.
type Door struct {
	// Socket is a unix socket: the companion's own, or what forwards to it.
	Socket string
	// Command, if there is no socket, makes a command that speaks MCP on its
	// standard streams, as `pollux connect` does on the companion's side.
	Command func() *exec.Cmd
	// Errors is where a command's standard error goes; nil keeps the end of it
	// for the error of [Door.Greet] only.
	Errors *os.File
}

// Via is a command of the system's shell.
func Via(line string) func() *exec.Cmd {
	return func() *exec.Cmd { return sys.Shell(line) }
}

// SSH reaches the companion of the directory there, on another host: a name of
// ssh's, with a user perhaps. dir may be empty. The words of POLLUX_SSH are run
// in place of ssh. What ssh would have to ask for is an error: the CLI has the
// terminal, and each of its connections is one of ssh's.
func SSH(host, dir string) func() *exec.Cmd {
	argv := strings.Fields(os.Getenv("POLLUX_SSH"))
	if len(argv) == 0 {
		argv = []string{"ssh"}
	}
	there := "pollux connect"
	if dir != "" {
		there += " --dir " + quote(dir)
	}
	// -- keeps a host from being an option.
	argv = append(argv, "-o", "BatchMode=yes", "-T", "--", host, there)
	return func() *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }
}

// quote makes one word of a text for the shell there, which is another one in
// Windows.
func quote(s string) string {
	if windows(s) {
		return `"` + strings.ReplaceAll(s, `"`, "") + `"`
	}
	return termtext.Word(s)
}

// Open connects.
func (d Door) Open(ctx context.Context) (io.ReadWriteCloser, error) {
	if d.Socket != "" {
		conn, err := editor.Dial(ctx, d.Socket)
		if errors.Is(err, editor.ErrForeign) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("no companion answers at %s (%v): is it running, and is this its socket? `pollux status --json` names it", d.Socket, cause(err))
		}
		if _, err := io.WriteString(conn, editor.MCPPreamble); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
	return startCommand(d.Command(), d.Errors)
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
	said  *ending // of its standard error, where that is kept

	once sync.Once
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
		c.said = keepEnding(errR)
	}
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
			c.said.close()
		}
	})
	return nil
}

// words end the command and are what it has said on standard error last, in one
// line.
func (c *command) words() string {
	c.Close()
	if c.said == nil {
		return ""
	}
	return termtext.Line(string(c.said.text), maxWords)
}

// maxWords bounds what is kept of a command's standard error, in bytes.
const maxWords = 2000

// An ending is the last that came from a pipe.
type ending struct {
	from *os.File
	done chan struct{}
	text []byte // valid once done is closed
}

func keepEnding(from *os.File) *ending {
	e := &ending{from: from, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			e.text = append(e.text, buf[:n]...)
			e.text = e.text[max(0, len(e.text)-maxWords):]
			if err != nil {
				return
			}
		}
	}()
	return e
}

// close waits for the end of the pipe, which a process that the command has left
// behind may hold open.
func (e *ending) close() {
	select {
	case <-e.done:
	case <-time.After(endWithin):
	}
	e.from.Close()
	<-e.done
}

// maxTitle bounds an editor's name in bytes.
const maxTitle = 80

// A Far is a companion elsewhere: what to call its editor, and the roots of its
// workspace there, if it tells them.
type Far struct {
	Editor string
	Roots  []string
}

// Greet connects as a CLI does.
func (d Door) Greet(ctx context.Context) (far Far, err error) {
	conn, err := d.Open(ctx)
	if err != nil {
		return far, err
	}
	defer conn.Close()
	client := mcp.NewClient(&mcp.Implementation{Name: "pollux-connect", Version: "0"}, nil)
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: conn, Writer: conn}, nil)
	if err != nil {
		why := "what answers is none"
		switch {
		case ctx.Err() != nil:
			why = "no answer in time; if it waits for a password, use a key or an agent"
		case strings.Contains(err.Error(), "invalid character"):
			why = "something else came; does a startup file of the shell there print something?"
		}
		if c, ok := conn.(*command); ok {
			if w := c.words(); w != "" {
				why = w
			}
		}
		return far, fmt.Errorf("no companion answers there: %s", why)
	}
	defer session.Close()
	res := session.InitializeResult()
	far.Editor = termtext.Line(res.ServerInfo.Title, maxTitle)
	if data, err := json.Marshal(res.Capabilities.Experimental[geminiide.RootsCapability]); err == nil {
		var capability struct{ Roots []string }
		if json.Unmarshal(data, &capability) == nil {
			far.Roots = capability.Roots
		}
	}
	return far, nil
}

// A Front is a door here for a companion there: CLIs come by the command
// `pollux connect --socket`, and each has a connection of its own.
type Front struct {
	// Socket is its path.
	Socket string

	door     Door
	paths    Paths
	gone     chan struct{} // closed when the companion has gone
	goneOnce sync.Once
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
	f := &Front{Socket: filepath.Join(dir, fmt.Sprintf("connect-%d-%06x.sock", os.Getpid(), rand.IntN(1<<24))), door: door, paths: paths, gone: make(chan struct{}), conns: make(map[io.Closer]bool)}
	if f.listener, err = net.Listen("unix", f.Socket); err != nil {
		return nil, fmt.Errorf("%w: set POLLUX_RUNTIME_DIR to a short path of your own", err)
	}
	if err := os.Chmod(f.Socket, 0o600); err != nil {
		f.listener.Close()
		return nil, err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.serving.Go(func() {
		sys.Accept(f.listener, func(conn net.Conn) {
			f.serving.Go(func() { f.serve(ctx, conn) })
		})
	})
	if door.Socket != "" {
		f.serving.Go(func() { f.watch(ctx) })
	}
	return f, nil
}

// lookAgain is how often a socket is looked at.
const lookAgain = 2 * time.Second

// watch notices when the companion takes its socket away.
func (f *Front) watch(ctx context.Context) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := os.Stat(f.door.Socket); errors.Is(err, os.ErrNotExist) {
			f.lost()
			return
		}
	}
}

// Gone is closed when the companion has gone: its socket is, or a CLI found
// nobody there. Where a command leads there it may come back, and is not given
// up.
func (f *Front) Gone() <-chan struct{} { return f.gone }

func (f *Front) lost() { f.goneOnce.Do(func() { close(f.gone) }) }

// prune removes what killed fronts have left. One of another container, which
// shares the directory, answers.
func prune(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "connect-*.sock"))
	for _, path := range left {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		} else if sys.Refused(err) {
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
	first := make([]byte, len(editor.MCPPreamble))
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != editor.MCPPreamble {
		return
	}
	door, err := f.door.Open(ctx)
	if err != nil { // the CLI says that it is disconnected
		if f.door.Socket != "" && ctx.Err() == nil {
			f.lost()
		}
		return
	}
	if !f.track(door, true) {
		door.Close()
		return
	}
	defer f.track(door, false)
	if err := Relay(conn, door, f.paths); errors.Is(err, ErrSilent) && f.door.Socket != "" && ctx.Err() == nil {
		f.lost()
	}
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
