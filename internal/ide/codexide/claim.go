package codexide

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

const (
	// dialTimeout is how long a server of this machine may take to accept.
	dialTimeout = 500 * time.Millisecond
	// probeInterval is the interval between connections to a server that was there
	// the last time.
	probeInterval = 10 * time.Second
)

// pipe is the named pipe that Codex CLI asks on Windows. It is one for all users.
const pipe = `\\.\pipe\codex-ipc`

// Socket returns the path of the socket that the companion serves, or the name of the
// pipe on Windows.
func Socket() string {
	if runtime.GOOS == "windows" {
		return pipe
	}
	return SocketIn(os.TempDir())
}

// SocketIn returns the path of the socket for a Codex CLI with that temporary directory.
func SocketIn(tmp string) string {
	return filepath.Join(tmp, "codex-ipc", "ipc-"+strconv.Itoa(os.Getuid())+".sock")
}

// Preferred returns the paths of the sockets that Codex CLI tries before [Socket]. The
// vendor's own programs serve the first one. The companion leaves all of them to
// others: a program of the vendor that found its socket taken could not work. On Windows
// there are none.
func Preferred() (paths []string) {
	if runtime.GOOS == "windows" {
		return nil
	}
	if home, err := Home(); err == nil {
		paths = append(paths, filepath.Join(home, "ipc", "ipc.sock"))
	}
	if os.Getuid() == 0 {
		paths = append(paths, filepath.Join(os.TempDir(), "codex-ipc", "ipc.sock"))
	}
	return paths
}

// Home returns the directory of Codex CLI's settings.
func Home() (string, error) {
	if dir := os.Getenv("CODEX_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".codex"), err
}

// wanted reports whether the user has Codex CLI.
func wanted() bool {
	if home, err := Home(); err == nil && disk.Exists(home) {
		return true
	}
	_, err := exec.LookPath(Command)
	return err == nil
}

// A claim is a socket or a pipe that this process has made and listens on.
type claim struct {
	path     string
	listener net.Listener
	file     fs.FileInfo // of the socket; nil for a pipe
}

var (
	// errTaken reports that a server listens on the socket.
	errTaken = errors.New("another server listens on the socket")
	// errForeign reports that the socket's path holds something that is not ours.
	errForeign = errors.New("is not your socket: remove it")
)

// newClaim listens on a socket. It replaces an abandoned socket of the user, and
// nothing else.
func newClaim(path string) (*claim, error) {
	if sock.IsPipe(path) {
		return newPipeClaim(path)
	}
	if err := disk.PrivateTempDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if file, err := os.Lstat(path); err == nil {
		if file.Mode().Type() != fs.ModeSocket || !disk.Own(path, file) {
			return nil, fmt.Errorf("%s %w", path, errForeign)
		}
		if !sock.RefusesConnections(path) || !removeSocket(path, sock.RefusesConnections) {
			return nil, errTaken
		}
	}
	l, err := sock.Listen(path)
	if err != nil {
		if _, taken := os.Lstat(path); taken == nil {
			return nil, errTaken // another server was faster
		}
		return nil, fmt.Errorf("%w: set %s to a directory that you own and that has a short path, also for the agent", err, disk.TempVars)
	}
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &claim{path, l, file}, nil
}

// newPipeClaim listens on a pipe, unless it exists.
func newPipeClaim(name string) (*claim, error) {
	l, err := sock.Listen(name)
	if errors.Is(err, fs.ErrExist) {
		return nil, errTaken
	}
	if err != nil {
		return nil, err
	}
	return &claim{name, l, nil}, nil
}

// held reports whether the path still leads to the claim's socket. A pipe cannot be
// replaced.
func (c *claim) held() bool { return c.file == nil || c.is(c.path) }

func (c *claim) is(path string) bool {
	file, err := os.Lstat(path)
	return err == nil && sameSocket(file, c.file)
}

// sameSocket reports whether two files are the same socket. A new file may have the
// number of an old one.
func sameSocket(a, b fs.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

// release stops listening. It removes the socket, unless another program has replaced
// it. Open connections stay, and a pipe with them.
func (c *claim) release() {
	if c.file != nil && c.held() {
		removeSocket(c.path, c.is)
	}
	c.listener.Close()
}

// removeSocket removes a socket if it may. It asks after it has moved the socket away:
// a server could replace it between the question and the removal. A socket that must
// stay comes back.
func removeSocket(path string, may func(path string) bool) bool {
	moved := path + "." + rand.Text()[:8]
	if err := os.Rename(path, moved); err != nil {
		return false
	}
	defer os.Remove(moved)
	if may(moved) {
		return true
	}
	os.Link(moved, path) // it fails if there is another socket by now
	return false
}

// A probe tells whether a server listens on a socket of another program, without a new
// connection each time.
type probe struct {
	path string

	file    fs.FileInfo // of the socket at the last connection; nil if there is none
	at      time.Time   // of the last connection
	pid     int         // of the server; 0 if unknown
	live    bool
	foreign bool // see [IsForeign]
}

// look returns the server's process, 0 if unknown, and whether there is a server. A
// server that does not accept, such as a stopped one, counts.
func (p *probe) look() (pid int, live bool) {
	var file fs.FileInfo
	if !sock.IsPipe(p.path) { // a pipe has no file
		var err error
		file, err = os.Lstat(p.path)
		if err != nil || file.Mode().Type() != fs.ModeSocket {
			*p = probe{path: p.path}
			return 0, false
		}
	}
	same := file == nil || p.file != nil && sameSocket(p.file, file)
	if !same || time.Since(p.at) >= probeInterval || p.pid > 0 && !proc.Alive(p.pid) {
		*p = probe{path: p.path, file: file, at: time.Now()}
		p.dial()
	}
	return p.pid, p.live
}

func (p *probe) dial() {
	conn, err := Dial(p.path)
	if err != nil {
		p.live = !sock.Refused(err) && !errors.Is(err, fs.ErrNotExist)
		p.foreign = sock.IsPipe(p.path) && IsForeign(err)
		return
	}
	defer conn.Close()
	peer, _ := sock.PeerOf(conn)
	p.pid, p.live = peer.PID, true
}

// Dial connects to a socket or to a pipe. A server of this machine accepts
// immediately.
func Dial(path string) (net.Conn, error) {
	if !sock.IsPipe(path) {
		return net.DialTimeout("unix", path, dialTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return sock.Dial(ctx, path)
}

// IsForeign reports whether [Dial] failed because another user, or an elevated program of this
// user, has the pipe.
func IsForeign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, sock.ErrForeign)
}
