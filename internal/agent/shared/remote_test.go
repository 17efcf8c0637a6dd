package shared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// farEnd returns a connection whose other end f serves.
func farEnd(f func(l *link)) io.ReadWriteCloser {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		f(newLink(theirs))
	}()
	return ours
}

// A connection on which nothing answers is explained. A pool's own words need no
// explanation.
func TestExplain(t *testing.T) {
	explained := func(_ context.Context, conn io.ReadWriteCloser, err error) error {
		return fmt.Errorf("explained: %w", err)
	}
	for _, tt := range []struct{ answer, want string }{
		{"", "explained: EOF"},
		{"Welcome to far!\n", "explained: invalid character"},
		{`{"jsonrpc": "2.0"}` + "\n", "the program that answers is not a pool of Pollux"},
		{`{"name": "pollux pool", "protocol": 2, "error": "no"}` + "\n", "no"},
		{`{"name": "pollux pool", "protocol": 99, "version": "v9"}` + "\n", "the pool is of Pollux v9"},
	} {
		c := newTestClient(t, "", func(cfg *Config) {
			cfg.Hello, cfg.Explain = nil, explained
			cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) {
				return farEnd(func(l *link) { io.WriteString(l.conn, tt.answer) }), nil
			}
		})
		if _, err := run(t, c, t.Context(), agent.Request{}, ignore); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.answer, err, tt.want)
		}
	}
}

// A connection that is lost again and again does not hold up a request.
func TestConnectionsAreLost(t *testing.T) {
	tries := 0
	c := newTestClient(t, "", func(cfg *Config) {
		cfg.Hello = nil
		cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) {
			tries++
			return farEnd(func(l *link) {
				l.w.Encode(Welcome{Name: welcomeName, Protocol: Protocol})
				var request any
				l.greeting(&request)
			}), nil
		}
	})
	const want = "the pool has ended 3 times before the answer: try again"
	if _, err := run(t, c, t.Context(), agent.Request{}, ignore); err == nil || err.Error() != want || tries != 3 {
		t.Errorf("got %v after %d attempts", err, tries)
	}
}

// A bridge on another machine gets an error if the directory does not exist where the
// pool runs.
func TestDirectoryIsMissingThere(t *testing.T) {
	path, dir := socket(t), t.TempDir()
	startPool(t, path, say(), time.Hour)
	c := newTestClient(t, path, func(cfg *Config) { cfg.Hello = &Hello{Protocol: Protocol, Agent: "test"} })
	if r, err := run(t, c, t.Context(), agent.Request{Prompt: "x", Dir: dir}, ignore); err != nil || r.Answer != "said x" {
		t.Errorf("got %+v, %v", r, err)
	}
	missing := filepath.Join(dir, "missing")
	_, err := run(t, c, t.Context(), agent.Request{Dir: missing}, ignore)
	if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "--map HERE=THERE") {
		t.Errorf("got %v", err)
	}
}

// refusing is a set of files that cannot be read or written.
type refusing struct{}

func (refusing) Read(path string) (string, error) { return "", errors.New(path + " is ignored") }
func (refusing) Write(path, _ string) error       { return errors.New(path + " is read-only") }

// An error about a file names it as the agent does.
func TestFileErrorsHaveTheAgentsNames(t *testing.T) {
	var read, wrote error
	path := socket(t)
	startPool(t, path, &script{run: func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		files := req.Change.Files()
		_, read = files.Read("/there/a")
		wrote = files.Write("/there/a", "x")
		return agent.Result{}, nil
	}}, time.Hour)
	c := newTestClient(t, path, func(cfg *Config) {
		cfg.Here = func(p string) (string, bool) { return strings.Replace(p, "/there", "/here", 1), true }
	})
	change := &agent.Change{Files: func() agent.Files { return refusing{} }}
	if _, err := run(t, c, t.Context(), agent.Request{Change: change}, ignore); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(read, "; ", wrote) != "/there/a is ignored; /there/a is read-only" {
		t.Errorf("got %v; %v", read, wrote)
	}
}

// The agent's tools create a directory for a new file, although the file is the bridge's.
// It is removed, unless it holds other files.
func TestNewDirectoriesAreRemoved(t *testing.T) {
	path := socket(t)
	dir := systest.Dir(t)
	in := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	startPool(t, path, &script{run: func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		files := req.Change.Files()
		for _, name := range []string{in("a", "b", "new"), in("a", "new"), in("kept", "new"), in("old", "new"), in("..", "outside", "new")} {
			if _, err := files.Read(name); err != nil {
				return agent.Result{}, err
			}
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				return agent.Result{}, err
			}
			if err := files.Write(name, "text"); err != nil {
				return agent.Result{}, err
			}
		}
		return agent.Result{}, os.WriteFile(in("kept", "other"), nil, 0o600)
	}}, time.Hour)
	systest.MakeDir(t, in("old"))
	c := newTestClient(t, path, func(cfg *Config) { cfg.Hello = &Hello{Protocol: Protocol, Agent: "test"} })
	change := &agent.Change{Files: func() agent.Files { return memory{} }}
	if _, err := run(t, c, t.Context(), agent.Request{Dir: dir, Change: change}, ignore); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a": false, "kept": true, "old": true, "../outside": true} {
		if got := disk.Exists(in(filepath.FromSlash(name))); got != want {
			t.Errorf("%s exists: %v", name, got)
		}
	}
}

// An agent that still works on a cancelled request may create a directory.
func TestNewDirectoriesOfACancelledRequest(t *testing.T) {
	dir := systest.Dir(t)
	file := filepath.Join(dir, "new", "file")
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	m := newMortal(t, func(ctx context.Context, req agent.Request) (agent.Result, error) {
		if _, err := req.Change.Files().Read(file); err != nil {
			t.Error(err)
		}
		cancel()
		<-ctx.Done()
		go func() {
			<-returned
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Error(err)
			}
			req.Released()
		}()
		return agent.Result{}, context.Cause(ctx)
	})
	released := make(chan struct{})
	req := agent.Request{
		Dir: dir, Change: &agent.Change{Files: func() agent.Files { return memory{} }}, Released: func() { close(released) },
	}
	if _, err := clientOf(t, m).Run(ctx, req, ignore); err == nil {
		t.Error("it was not cancelled")
	}
	close(returned)
	<-released
	if disk.Exists(filepath.Dir(file)) {
		t.Error("the directory was left")
	}
}

// The agent works in the real directory. The bridge's files have the name that the bridge
// has sent, also if the agent names them through a link, such as /tmp on a Mac.
func TestLinkedDirectory(t *testing.T) {
	path := socket(t)
	dir := systest.Dir(t)
	link := filepath.Join(t.TempDir(), "link")
	systest.Link(t, dir, link)
	other := filepath.Join(t.TempDir(), "other")
	systest.Link(t, dir, other)
	startPool(t, path, &script{run: func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		files := req.Change.Files()
		text, err := files.Read(filepath.Join(req.Dir, "a"))
		return agent.Result{Answer: text + " in " + req.Dir}, errors.Join(err,
			files.Write(filepath.Join(req.Dir, "a"), "new"), files.Write(filepath.Join(other, "sub", "b"), "newer"))
	}}, time.Hour)
	c := newTestClient(t, path, func(cfg *Config) { cfg.Hello = &Hello{Protocol: Protocol, Agent: "test"} })
	name := filepath.Join(link, "a")
	files := memory{name: "old"}
	r, err := run(t, c, t.Context(), agent.Request{Dir: link, Change: &agent.Change{Files: func() agent.Files { return files }}}, ignore)
	if err != nil || r.Answer != "old in "+dir || files[name] != "new" || files[filepath.Join(link, "sub", "b")] != "newer" {
		t.Errorf("got %+v, %v, %v", r, err, files)
	}
}
