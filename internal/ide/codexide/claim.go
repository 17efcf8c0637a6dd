package codexide

import (
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

	"pollux/internal/sys"
)

const (
	// dialTimeout is the time in which a server of this machine must accept.
	dialTimeout = 500 * time.Millisecond
	// probeInterval is the interval between connections to a server that was there
	// the last time.
	probeInterval = 10 * time.Second
)

// Socket returns the path of the socket that the companion serves, or "" if Codex CLI
// uses none on this system.
func Socket() string {
	if runtime.GOOS == "windows" { // it uses a named pipe
		return ""
	}
	return SocketIn(os.TempDir())
}

// SocketIn returns the path of the socket for a Codex CLI with that temporary directory.
func SocketIn(tmp string) string {
	return filepath.Join(tmp, "codex-ipc", "ipc-"+strconv.Itoa(os.Getuid())+".sock")
}

// Preferred returns the paths of the sockets that Codex CLI tries before [Socket]. The
// vendor's own programs serve the first one. The companion leaves all of them to
// others: a program of the vendor that found its socket taken could not work.
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

// wanted reports whether somebody here uses Codex CLI.
func wanted() bool {
	if home, err := Home(); err == nil {
		if _, err := os.Stat(home); err == nil {
			return true
		}
	}
	_, err := exec.LookPath(Command)
	return err == nil
}

// A claim is a socket that this process has made and listens on.
type claim struct {
	path     string
	listener net.Listener
	file     fs.FileInfo // of the socket
}

var (
	// errTaken reports that a server listens on the socket.
	errTaken = errors.New("another server listens on the socket")
	// errForeign reports that the socket's path holds something that is not ours.
	errForeign = errors.New("is not a socket of yours: remove it")
)

// newClaim listens on a socket. It replaces a socket of the user that nobody serves,
// and nothing else.
func newClaim(path string) (*claim, error) {
	if err := sys.PrivateTempDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if file, err := os.Lstat(path); err == nil {
		if file.Mode().Type() != fs.ModeSocket || !sys.Own(path, file) {
			return nil, fmt.Errorf("%s %w", path, errForeign)
		}
		if !sys.RefusesConnections(path) || !removeSocket(path, sys.RefusesConnections) {
			return nil, errTaken
		}
	}
	l, err := sys.ListenSocket(path)
	if err != nil {
		if _, taken := os.Lstat(path); taken == nil {
			return nil, errTaken // another server was faster
		}
		return nil, fmt.Errorf("%w: set %s to a directory that you own and that has a short path, also for the agent", err, sys.TempVar)
	}
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &claim{path, l, file}, nil
}

// held reports whether the path still leads to the claim's socket.
func (c *claim) held() bool { return c.is(c.path) }

func (c *claim) is(path string) bool {
	file, err := os.Lstat(path)
	return err == nil && sameSocket(file, c.file)
}

// sameSocket reports whether two files are the same socket. A new file may have the
// number of an old one.
func sameSocket(a, b fs.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }

// release stops listening. It removes the socket, unless another program has replaced
// it. Open connections stay.
func (c *claim) release() {
	if c.held() {
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

	file fs.FileInfo // of the socket at the last connection; nil if there is none
	at   time.Time   // of the last connection
	pid  int         // of the server; 0 if unknown
	live bool
}

// look returns the server's process, 0 if unknown, and whether there is a server. A
// server that does not accept, such as a stopped one, counts.
func (p *probe) look() (pid int, live bool) {
	file, err := os.Lstat(p.path)
	if err != nil || file.Mode().Type() != fs.ModeSocket {
		*p = probe{path: p.path}
		return 0, false
	}
	if p.file == nil || !sameSocket(p.file, file) || time.Since(p.at) >= probeInterval || p.pid > 0 && !sys.Alive(p.pid) {
		*p = probe{path: p.path, file: file, at: time.Now()}
		p.pid, p.live = dial(p.path)
	}
	return p.pid, p.live
}

func dial(path string) (pid int, live bool) {
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return 0, !sys.Refused(err) && !errors.Is(err, fs.ErrNotExist)
	}
	defer conn.Close()
	peer, _ := sys.PeerOf(conn)
	return peer.PID, true
}
