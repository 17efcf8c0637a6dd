package sock

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"pollux/internal/sys/disk"

	"pollux/internal/sys/proc"
)

// FileType is the type of the file of a socket; see [Listen].
const FileType = fs.FileMode(0)

const (
	// pipes starts the name of each pipe of this machine.
	pipes = `\\.\pipe\`
	// pipePrefix starts the name of each of our pipes.
	pipePrefix = pipes + "pollux-"
	// maxPipeName is more than a pipe's name has, in bytes.
	maxPipeName = 1 << 10
	// pipeBuffer is how much a pipe holds before a write waits for the reader, in bytes:
	// as much as a unix socket.
	pipeBuffer = 64 << 10
)

// A pipeListener listens on a named pipe.
type pipeListener struct {
	net.Listener
	path string // of the file with the name; empty without such a file
	keep atomic.Bool
}

// pipeSecurity returns the security descriptor of a pipe that only the user can open. The
// pipe of an elevated process also has a label, so that only elevated processes can write to
// it: the list alone lets all processes of the user in.
func pipeSecurity(user string, elevated bool) string {
	s := "O:" + user + "D:P(A;;GA;;;" + user + ")"
	if elevated {
		s += "S:(ML;;NW;;;HI)" // mandatory label, no write up, high
	}
	return s
}

// listenPipe listens on a pipe that only the user can open.
func listenPipe(name string) (*pipeListener, error) {
	user, err := disk.CurrentUser()
	if err != nil {
		return nil, err
	}
	l, err := winio.ListenPipe(name, &winio.PipeConfig{
		SecurityDescriptor: pipeSecurity(user.String(), proc.Elevated()),
		MessageMode:        true, // so that an end can close its writing side
		InputBufferSize:    pipeBuffer, OutputBufferSize: pipeBuffer,
	})
	if err != nil {
		return nil, err
	}
	occupyFirst(name)
	return &pipeListener{Listener: l}, nil
}

// occupyFirst connects to a pipe that is not served yet and closes the connection. go-winio
// creates the pipe with an instance that it never serves. Windows gives it to no client,
// but Wine does.
func occupyFirst(pipe string) {
	name, err := windows.UTF16PtrFromString(pipe)
	if err != nil {
		return
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING,
		windows.SECURITY_SQOS_PRESENT|windows.SECURITY_ANONYMOUS, 0)
	if err == nil {
		windows.CloseHandle(h)
	}
}

func (l *pipeListener) SetUnlinkOnClose(unlink bool) { l.keep.Store(!unlink) }

func (l *pipeListener) Close() error {
	if l.path != "" && !l.keep.Swap(true) {
		os.Remove(l.path)
	}
	return l.Listener.Close()
}

func isPipe(path string) bool {
	return len(path) >= len(pipes) && strings.EqualFold(path[:len(pipes)], pipes)
}

func listenSocket(path string) (Listener, error) {
	if isPipe(path) {
		l, err := listenPipe(path)
		if errors.Is(err, fs.ErrPermission) { // what Windows says if the pipe exists
			err = &fs.PathError{Op: "listen", Path: path, Err: fs.ErrExist}
		}
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	name := pipePrefix + rand.Text()
	l, err := listenPipe(name)
	if err != nil {
		return nil, err
	}
	// The file appears with its content.
	f, err := disk.CreateTemp(filepath.Dir(path))
	if err != nil {
		l.Close()
		return nil, err
	}
	_, err = f.WriteString(name)
	if err = errors.Join(err, f.Close()); err == nil {
		err = disk.RenameNew(f.Name(), path, windows.MoveFileEx)
	}
	if err != nil {
		l.Close()
		os.Remove(f.Name())
		return nil, err
	}
	l.path = path
	return l, nil
}

// errNotSocket reports that a file does not hold the name of one of our pipes.
var errNotSocket = errors.New("is not a socket of Pollux: remove it")

// pipeOf returns the name of the pipe that is in the file of a socket.
func pipeOf(path string) (string, error) {
	data, err := disk.ReadFile(path, maxPipeName)
	switch {
	case errors.Is(err, disk.ErrTooLarge), err == nil && !bytes.HasPrefix(data, []byte(pipePrefix)):
		return "", fmt.Errorf("%s %w", path, errNotSocket)
	case err != nil:
		return "", err
	}
	return string(data), nil
}

func isSocket(path string) (bool, error) {
	_, err := pipeOf(path)
	if errors.Is(err, errNotSocket) {
		return false, nil
	}
	return err == nil, err
}

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	name := path
	if !isPipe(path) {
		var err error
		if name, err = pipeOf(path); err != nil {
			return nil, err
		}
	}
	conn, err := winio.DialPipeContext(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no process listens on %s: %w", path, windows.WSAECONNREFUSED)
	}
	if err != nil {
		return nil, err
	}
	// Another user may have taken the name of a listener that has ended.
	if !ownPipe(conn) {
		conn.Close()
		return nil, fmt.Errorf("%s %w", path, ErrForeign)
	}
	return conn, nil
}

func pipeHandle(conn net.Conn) (windows.Handle, bool) {
	pipe, ok := conn.(interface{ Fd() uintptr })
	if !ok {
		return 0, false
	}
	return windows.Handle(pipe.Fd()), true
}

// pipePeer returns the process at the other end of a pipe.
func pipePeer(conn net.Conn) (pid int, ok bool) {
	pipe, ok := pipeHandle(conn)
	if !ok {
		return 0, false
	}
	var flags, process uint32
	if err := windows.GetNamedPipeInfo(pipe, &flags, nil, nil, nil); err != nil {
		return 0, false
	}
	get := windows.GetNamedPipeServerProcessId
	if flags&windows.PIPE_SERVER_END != 0 {
		get = windows.GetNamedPipeClientProcessId
	}
	err := get(pipe, &process)
	return int(process), err == nil
}

// ownPipe reports whether a process of the user made the pipe.
func ownPipe(conn net.Conn) bool {
	pipe, ok := pipeHandle(conn)
	if !ok {
		return false
	}
	sd, err := windows.GetSecurityInfo(pipe, windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	return err == nil && disk.IsOwn(disk.OwnerIn(sd))
}

// Refused reports whether a dial failed because no process listens.
func Refused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// listenPrivate listens on a pipe that only the user can open.
func listenPrivate(name string) (l net.Listener, scheme, address string, err error) {
	pipe := fmt.Sprintf("%s%s-%d-%s", pipePrefix, name, os.Getpid(), rand.Text())
	l, err = listenPipe(pipe)
	return l, "pipe", pipe, err
}
