package editor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/jsonrpc"
	"pollux/internal/paths"
	"pollux/internal/sys/shell"
)

// AnswerTimeout limits a conversation with a companion. A companion that is
// stopped, for instance by Ctrl-Z, still accepts connections.
const AnswerTimeout = 2 * time.Second

// ErrGone reports that no companion listens on a socket.
var ErrGone = errors.New("the companion is gone: start the editor again, or `pollux run`")

// Connect connects to a companion's socket. The error is [ErrGone], or wraps
// [ErrForeign].
func Connect(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := Dial(ctx, socket)
	if err != nil && !errors.Is(err, ErrForeign) {
		err = ErrGone
	}
	return conn, err
}

// WithClient connects to the companion on a socket, introduces the program as
// self, and runs f. All of it must end within [AnswerTimeout].
func WithClient(ctx context.Context, socket string, self Implementation, f func(context.Context, *Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	return talk(ctx, socket, self, func(ctx context.Context, c *Client, _ InitializeResult) error { return f(ctx, c) })
}

// SendTimeout is how long a companion tries to send something to an agent, which may be
// busy.
const SendTimeout = 30 * time.Second

// Send sends something to an agent of the companion on a socket. The companion's reason
// for a refusal is the error.
func Send(ctx context.Context, socket string, self Implementation, p SendParams) (res SendResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, SendTimeout+AnswerTimeout)
	defer cancel()
	err = talk(ctx, socket, self, func(ctx context.Context, c *Client, _ InitializeResult) error {
		return c.Call(ctx, MethodSend, p, &res)
	})
	var refusal *jsonrpc.Error
	if errors.As(err, &refusal) {
		err = errors.New(refusal.Message)
	}
	return res, err
}

// AgentEnv returns the variables that lead an agent to the companion on a socket.
// It ignores all but those with the given names.
func AgentEnv(ctx context.Context, socket string, self Implementation, names []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	env := make(map[string]string)
	err := talk(ctx, socket, self, func(_ context.Context, _ *Client, info InitializeResult) error {
		for _, name := range names {
			if v, ok := info.Env[name]; ok {
				env[name] = v
			}
		}
		return nil
	})
	return env, err
}

// ReviewPage returns the status of the companion on a socket, and a new link that opens
// its review page once.
func ReviewPage(ctx context.Context, socket string, self Implementation) (st Status, link Link, err error) {
	err = WithClient(ctx, socket, self, func(ctx context.Context, c *Client) error {
		if st, err = c.Status(ctx); err != nil {
			return err
		}
		return c.Call(ctx, MethodReviewLink, nil, &link)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = ErrorSilent(socket)
	}
	return st, link, err
}

// ErrorSilent returns the error for a companion that does not answer on its socket.
func ErrorSilent(socket string) error {
	name, _, _ := strings.Cut(filepath.Base(socket), "-")
	pid, _ := strconv.Atoi(name) // see [SocketPath]
	return fmt.Errorf("the companion at %s does not answer: %s", socket, shell.ResumeOrKill(pid))
}

func talk(ctx context.Context, socket string, self Implementation,
	f func(context.Context, *Client, InitializeResult) error) error {
	c, info, err := Open(ctx, socket, self)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c, info)
}

// Open connects to the companion on a socket and introduces the program as self.
func Open(ctx context.Context, socket string, self Implementation) (*Client, InitializeResult, error) {
	conn, err := Connect(ctx, socket)
	if err != nil {
		return nil, InitializeResult{}, err
	}
	c := NewClient(conn, Handler{})
	info, err := c.Initialize(ctx, InitializeParams{Client: self})
	if err != nil {
		c.Close()
		return nil, InitializeResult{}, err
	}
	return c, info, nil
}

// A Running is one of the user's companions that listens on a socket.
type Running struct {
	Status
	Socket string
	// Stopped means that the companion did not answer in time. Its status is
	// empty.
	Stopped bool
	client  *Client // set by openAll
}

// List returns the user's running companions, the newest first.
func List(ctx context.Context, self Implementation) ([]Running, error) {
	all, err := openAll(ctx, self)
	closeAll(all)
	return all, err
}

// openAll is [List] with a client of each companion that answered.
func openAll(ctx context.Context, self Implementation) ([]Running, error) {
	sockets, err := Sockets()
	if err != nil {
		return nil, err
	}
	var all []Running
	for _, socket := range sockets {
		c, err := ask(ctx, socket, self)
		if err == nil {
			all = append(all, c)
		} else if errors.Is(err, context.DeadlineExceeded) {
			all = append(all, Running{Socket: socket, Stopped: true})
		}
	}
	slices.SortFunc(all, func(a, b Running) int { return int(b.Started - a.Started) })
	return all, nil
}

// ask connects to the companion on a socket and asks for its status.
func ask(ctx context.Context, socket string, self Implementation) (Running, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	c, _, err := Open(ctx, socket, self)
	if err != nil {
		return Running{}, err
	}
	st, err := c.Status(ctx)
	if err != nil {
		c.Close()
	}
	return Running{Status: st, Socket: socket, client: c}, err
}

func closeAll(all []Running) {
	for i := range all {
		if all[i].client != nil {
			all[i].client.Close()
			all[i].client = nil
		}
	}
}

// Find returns the socket of a running companion: socket if it is not empty, then
// the one in $POLLUX_SOCKET, then the result of [FindFor].
func Find(ctx context.Context, self Implementation, socket, path string) (string, error) {
	if socket = cmp.Or(socket, os.Getenv(EnvSocket)); socket != "" {
		return socket, nil
	}
	return FindFor(ctx, self, path)
}

// WithClientFor is [WithClient] for the companion that [Find] returns. It asks and uses
// that companion on one connection.
func WithClientFor(ctx context.Context, self Implementation, socket, path string,
	f func(context.Context, *Client) error) error {
	if socket = cmp.Or(socket, os.Getenv(EnvSocket)); socket != "" {
		return WithClient(ctx, socket, self, f)
	}
	path, err := realPath(path)
	if err != nil {
		return err
	}
	all, err := openAll(ctx, self)
	defer closeAll(all)
	if err != nil {
		return err
	}
	found := fitting(all, path)
	if len(found) == 0 {
		return noCompanion(path)
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	return f(ctx, found[0].client)
}

// FindFor returns the socket of the companion whose workspace contains a file
// or directory: the first one of [ListFor].
func FindFor(ctx context.Context, self Implementation, path string) (string, error) {
	all, path, err := ListFor(ctx, self, path)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", noCompanion(path)
	}
	return all[0].Socket, nil
}

func noCompanion(path string) error {
	return fmt.Errorf("no companion is running for %s: start one with `pollux run` in its project", path)
}

// ListFor returns the running companions whose workspace contains a file or directory,
// and its path without symbolic links. The most specific workspace comes first, then a
// companion with a connected agent, then the newest. An empty path is the working
// directory.
func ListFor(ctx context.Context, self Implementation, path string) ([]Running, string, error) {
	path, err := realPath(path)
	if err != nil {
		return nil, "", err
	}
	all, err := List(ctx, self)
	if err != nil {
		return nil, "", err
	}
	return fitting(all, path), path, nil
}

// realPath returns a path without symbolic links. An empty path is the working directory.
func realPath(path string) (string, error) {
	if path == "" {
		return WorkingDir()
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if target, err := paths.Existing(path); err == nil {
		path = target
	}
	return path, nil
}

// fitting returns the companions whose workspace contains a path, the best one first.
func fitting(all []Running, path string) (found []Running) {
	lengths := make(map[string]int) // of the most specific root, by socket
	for _, c := range all {
		for _, root := range c.Roots {
			if paths.Contains(root, path) {
				lengths[c.Socket] = max(lengths[c.Socket], len(root))
			}
		}
		if lengths[c.Socket] > 0 {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b Running) int { // they are sorted by age
		return cmp.Or(cmp.Compare(lengths[b.Socket], lengths[a.Socket]), cmp.Compare(used(b), used(a)))
	})
	return found
}

// used returns 1 for a companion with a connected agent, and 0 for another.
func used(c Running) int { return min(len(c.Clients), 1) }

// WorkingDir returns the working directory without symbolic links, the form in
// which agents and companions name it.
func WorkingDir() (string, error) {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = paths.Existing(dir)
	}
	if err != nil {
		return "", errors.New("the working directory is gone: cd to another one")
	}
	return dir, nil
}
