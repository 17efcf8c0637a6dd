package shared

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// probeTimeout is how long a pool may take to welcome a connection before another one
// takes its place.
const probeTimeout = 5 * time.Second

// socketPattern matches the sockets of pools of all versions.
const socketPattern = "pool-*.sock"

// killed finds the sockets of pools that were killed. No other version of Pollux would
// replace them. A pool that is about to listen holds the lock of the directory.
var killed = disk.Leftovers{Pattern: socketPattern, Type: sock.FileType, Abandoned: sock.RefusesConnections}

// ErrRunning reports that a pool is running already.
var ErrRunning = errors.New("a pool is running already")

// SocketPath returns where the pool's socket is. Its name depends on build, which
// identifies this build of Pollux: bridges of another version use another pool. So do
// bridges with raised rights, see [proc.Elevated]: no other process may have a pool run a program
// with these rights.
func SocketPath(build string) (string, error) {
	dir, err := disk.RuntimeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, socketName(build, proc.Elevated())), nil
}

func socketName(build string, elevated bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", Protocol, build))
	name := "pool-" + hex.EncodeToString(sum[:6])
	if elevated {
		name += "-elevated"
	}
	return name + ".sock"
}

// Sockets returns the paths of all pools' sockets, whether the pools run or not.
func Sockets() ([]string, error) {
	dir, err := disk.RuntimeDir()
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, socketPattern))
}

// Listen listens on the socket of a pool. It returns [ErrRunning] if another pool serves
// the socket. It replaces the socket of a pool that was killed or does not answer. Of
// several processes that call it at the same time, one gets the socket.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	unlock, err := disk.LockDir(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	is, err := sock.IsSocket(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !is:
		return nil, notASocket(path)
	default:
		if Probe(ctx, path) == nil {
			return nil, ErrRunning
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	killed.Remove(filepath.Dir(path))
	l, err := sock.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("%w: set POLLUX_RUNTIME_DIR to a short path of a directory you own", err)
	}
	l.SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, err
	}
	own := &ownSocket{Listener: l, path: path, info: info}
	own.remove = sync.OnceFunc(func() {
		if !own.Replaced() {
			os.Remove(path)
		}
	})
	return own, nil
}

// An ownSocket removes its socket when it is closed, but not the socket that another
// pool has put in its place.
type ownSocket struct {
	net.Listener
	path   string
	info   fs.FileInfo
	remove func()
}

// Replaced reports whether the socket was removed, or another one is in its place.
func (l *ownSocket) Replaced() bool {
	now, err := os.Lstat(l.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	// A later socket can have the same file number.
	return !os.SameFile(now, l.info) || !now.ModTime().Equal(l.info.ModTime())
}

func (l *ownSocket) Close() error {
	l.remove()
	return l.Listener.Close()
}

// Probe returns an error if no pool answers at a socket.
func Probe(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := sock.Dial(ctx, path)
	if err != nil {
		return err
	}
	l, _, err := greet(ctx, conn, &Hello{Protocol: commandProtocol})
	if err != nil {
		return err
	}
	return l.Close()
}

// Starter returns a function that connects to the pool at a socket, and starts one with
// argv if none answers. The pool outlives this process.
func Starter(path string, argv []string) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		if Probe(ctx, path) != nil {
			if err := Start(ctx, argv); err != nil {
				return nil, fmt.Errorf("the pool could not be started: %w", err)
			}
		}
		conn, err := sock.Dial(ctx, path)
		if errors.Is(err, fs.ErrNotExist) {
			err = errReplaced
		}
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
}

// errReplaced reports that the pool that was started listens on another socket.
var errReplaced = errors.New("Pollux has been replaced by another version since this bridge started: restart the MCP client")

// ReadyLine is the line that a pool prints on standard output once it, or another pool,
// listens. Any other line is an error.
const ReadyLine = "ready"

// Start starts a pool in the background and waits until it listens. argv must print
// [ReadyLine] then.
func Start(ctx context.Context, argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = filepath.VolumeName(os.TempDir()) + string(filepath.Separator)
	line, rest, err := proc.StartReporting(ctx, cmd)
	if err != nil {
		return err
	}
	rest.Close()
	if line != ReadyLine {
		return errors.New(line)
	}
	return nil
}
