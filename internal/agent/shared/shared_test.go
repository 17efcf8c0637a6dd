package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/queue"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	systest.VerifyTestMain(m)
}

// testTimeout is how long a step may take on a busy machine.
const testTimeout = 60 * time.Second

var row = &agent.Explainer{Account: func(agent.Env, string) string { return "" }}

// A script is a runner with scripted answers. It lists the forgotten conversations.
type script struct {
	run func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error)

	mu        sync.Mutex
	forgotten []string
}

func (s *script) Attempt(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	defer req.Released()
	return s.run(ctx, req, emit)
}

func (s *script) Check(_ context.Context, from agent.Source) (agent.Program, error) {
	if from.Command == "missing" {
		return agent.Program{}, &agent.Error{Kind: agent.NotInstalled, Remedy: agent.Remedy{What: "nothing there", Next: "install it"}}
	}
	return agent.Program{Path: from.Command, Version: "1.2.3"}, nil
}

func (s *script) Forget(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, session)
}

func (*script) Ahead(agent.Source, string) {}
func (*script) Workers() []agent.Worker    { return []agent.Worker{{PID: 1, Dir: "/w"}} }
func (*script) Close() error               { return nil }

// say returns a runner that answers with the prompt.
func say() *script {
	return &script{run: func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		return agent.Result{Answer: "said " + req.Prompt}, nil
	}}
}

// hang returns a runner that waits for the end of the request after its first words.
func hang() *script {
	return &script{run: func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
		emit(agent.Text{Text: "so far"})
		<-ctx.Done()
		return agent.Result{Answer: "so far"}, context.Cause(ctx)
	}}
}

// A testPool is a pool in this process.
type testPool struct {
	*Server
	runner *queue.Runner
	path   string
	end    func() error // ends it as a signal does
}

// newServer returns a server of one agent.
func newServer(r *queue.Runner, idle time.Duration) *Server {
	return &Server{
		Version: "test", IdleTimeout: idle, Log: slog.New(slog.DiscardHandler),
		Open: func(name string, _ *agent.Definition) (*queue.Runner, agent.Source, error) {
			if name != "test" {
				return nil, agent.Source{}, nil
			}
			return r, agent.Source{Command: "own"}, nil
		},
	}
}

// socket returns a path for a socket. It must be short.
func socket(t *testing.T) string {
	t.Helper()
	dir := systest.ShortDir(t)
	return filepath.Join(dir, "s")
}

var testHello = Hello{Protocol: Protocol, Agent: "test", Source: &agent.Source{Command: "program"}, PID: 7, Dir: "/w"}

// start starts a pool at a socket.
func startPool(t *testing.T, path string, r queue.Attempter, idle time.Duration) *testPool {
	t.Helper()
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &testPool{path: path, runner: queue.New(row, r)}
	p.Server = newServer(p.runner, idle)
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l) }()
	p.end = sync.OnceValue(func() error {
		cancel()
		return <-served
	})
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// newTestClient returns a client of the pool at a socket.
func newTestClient(t *testing.T, path string, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{Hello: &testHello, Connect: func(ctx context.Context) (io.ReadWriteCloser, error) { return sock.Dial(ctx, path) }}
	if change != nil {
		change(&cfg)
	}
	c := NewClient(cfg)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// run asks, and waits until the request is released.
func run(t *testing.T, c *Client, ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	t.Helper()
	released := make(chan struct{})
	req.Released = func() { close(released) }
	result, err := c.Run(ctx, req, emit)
	select {
	case <-released:
	case <-time.After(testTimeout):
		t.Error("the request was never released")
	}
	return result, err
}

func ignore(agent.Event) {}

// until waits for a condition to hold.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// A request, its events and its result arrive as they were sent.
func TestNothingIsLostOnTheWay(t *testing.T) {
	sentEvents := []agent.Event{
		agent.Queued{}, agent.Queued{Position: 2}, agent.Starting{}, agent.Started{}, agent.Text{Text: "a\n\u2028b"},
		agent.ToolUse{Name: "read_file", Summary: "x.go"}, agent.ToolResult{Name: "read_file", Message: "no such file"},
		agent.Retry{Attempt: 2, Wait: time.Minute, Kind: agent.Capacity, Message: "busy", Unsure: true},
		agent.FellBack{Fallback: agent.Fallback{From: "a", To: "b", Why: "c"}},
	}
	if len(sentEvents)-1 != len(events) {
		t.Errorf("%d of %d types are tested", len(sentEvents)-1, len(events))
	}
	result := agent.Result{
		Answer: "ä", Narration: "n", Model: "m", Tokens: agent.Tokens{Total: 9}, Tools: 3, Truncated: true, Runner: agent.Warmed,
		Queued: time.Second, Fallback: &agent.Fallback{From: "a", To: "b", Why: "c"}, FromFallback: true, Changed: true,
	}
	var got agent.Request
	s := &script{run: func(_ context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
		got = req
		for _, ev := range sentEvents[1:] {
			emit(ev)
		}
		return result, nil
	}}
	path := socket(t)
	startPool(t, path, s, time.Hour)
	c := newTestClient(t, path, nil)
	sent := agent.Request{
		Prompt: "p", Images: []string{"a.png"}, Model: "m", Fallback: "m", Dir: "/w", Verbatim: true, Spawn: true, Conversation: "s", Replay: "r", Schema: json.RawMessage(`{"type":"object"}`),
		Queue: agent.Queue{Limit: 3, Timeout: time.Second, StartInterval: 2, StartJitter: 3},
	}
	var received []agent.Event
	r, err := run(t, c, t.Context(), sent, func(ev agent.Event) { received = append(received, ev) })
	r.Queued = result.Queued // measured by the queue
	if err != nil || !reflect.DeepEqual(r, result) {
		t.Errorf("got %+v, %v", r, err)
	}
	if !reflect.DeepEqual(received, sentEvents) {
		t.Errorf("got %#v", received)
	}
	got.Released, got.Pace, got.Source = nil, nil, agent.Source{}
	if !reflect.DeepEqual(got, sent) {
		t.Errorf("got %+v, want %+v", got, sent)
	}
}

// Failures arrive with their kind and their words.
func TestErrors(t *testing.T) {
	for _, want := range []error{
		&agent.Error{Kind: agent.Crashed, Message: "m", Exit: 3, Remedy: agent.Remedy{What: "w", Next: "n"}},
		errors.New("no free slot within 30s"),
	} {
		s := &script{run: func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			return agent.Result{Narration: "so far"}, want
		}}
		path := socket(t)
		startPool(t, path, s, time.Hour)
		r, err := run(t, newTestClient(t, path, nil), t.Context(), agent.Request{}, ignore)
		var fault *agent.Error
		if err == nil || err.Error() != want.Error() || errors.As(want, &fault) != errors.As(err, &fault) || r.Partial() != "so far" {
			t.Errorf("got %+v, %v; want %v", r, err, want)
		}
	}
}

// The source of a connection is its own, or the pool's if it has none.
func TestSource(t *testing.T) {
	path := socket(t)
	startPool(t, path, say(), time.Hour)
	for _, tt := range []struct {
		from *agent.Source
		want string
	}{
		{&agent.Source{Command: "mine"}, "mine 1.2.3"}, {nil, "own 1.2.3"}, {&agent.Source{Command: "missing"}, "nothing there: install it"},
	} {
		hello := testHello
		hello.Source = tt.from
		c := newTestClient(t, path, func(cfg *Config) { cfg.Hello = &hello })
		program, err := c.Check(t.Context(), agent.Source{Command: "ignored"})
		got := program.Path + " " + program.Version
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// A request that is cancelled returns at once, with the text that had arrived.
func TestCancel(t *testing.T) {
	path := socket(t)
	p := startPool(t, path, hang(), time.Hour)
	c := newTestClient(t, path, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("late")
	r, err := run(t, c, ctx, agent.Request{}, func(ev agent.Event) {
		if _, ok := ev.(agent.Text); ok {
			cancel(late)
		}
	})
	if !errors.Is(err, late) || r.Partial() != "so far" {
		t.Errorf("got %+v, %v", r, err)
	}
	until(t, "the end of the run", func() bool { return p.status().Sessions[0].Requests == 0 })
}

// The user cancels a request before it has been sent, or while a large prompt is on its way.
// The pool worked on it to the end.
func TestCancelEarly(t *testing.T) {
	path := socket(t)
	p := startPool(t, path, hang(), time.Hour)
	c := newTestClient(t, path, nil)
	if _, err := c.Check(t.Context(), agent.Source{}); err != nil { // connects
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel) // it takes longer to encode this
	run(t, c, ctx, agent.Request{Prompt: strings.Repeat("\x01", 1<<20)}, ignore)
	until(t, "the end of the run", func() bool {
		all := p.status().Sessions // none if the request has not arrived
		return len(all) == 0 || all[0].Requests == 0
	})
	if _, err := run(t, c, ctx, agent.Request{}, ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The files of change mode are the bridge's: each attempt has new ones.
func TestFiles(t *testing.T) {
	s := &script{run: func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		first := req.Change.Files()
		if err := first.Write("/there/a", "lost"); err != nil {
			return agent.Result{}, err
		}
		second := req.Change.Files()
		if err := first.Write("/there/a", "late"); err == nil {
			return agent.Result{}, errors.New("an attempt that has ended may write")
		}
		text, err := second.Read("/there/a")
		if err != nil {
			return agent.Result{}, err
		}
		if _, err := second.Read("/elsewhere"); err == nil || !strings.Contains(err.Error(), "/elsewhere is not in a directory that both machines have") {
			return agent.Result{}, fmt.Errorf("got %w", err)
		}
		return agent.Result{Answer: text + " in " + req.Dir + " " + req.Change.Prompt + req.Change.Replay}, second.Write("/there/a", "new")
	}}
	path := socket(t)
	startPool(t, path, s, time.Hour)
	c := newTestClient(t, path, func(cfg *Config) {
		cfg.There = func(p string) (string, bool) {
			return strings.Replace(p, "/here", "/there", 1), strings.HasPrefix(p, "/here")
		}
		cfg.Here = func(p string) (string, bool) {
			return strings.Replace(p, "/there", "/here", 1), strings.HasPrefix(p, "/there")
		}
	})
	var attempts []memory
	r, err := run(t, c, t.Context(), agent.Request{Dir: "/here/w", Change: &agent.Change{Prompt: "p", Replay: "r", Files: func() agent.Files {
		attempts = append(attempts, memory{"/here/a": "old"})
		return attempts[len(attempts)-1]
	}}}, ignore)
	if err != nil || r.Answer != "old in /there/w pr" || fmt.Sprint(attempts) != "[map[/here/a:lost] map[/here/a:new]]" {
		t.Errorf("got %+v, %v, %v", r, err, attempts)
	}
	_, err = run(t, c, t.Context(), agent.Request{Dir: "/elsewhere"}, ignore)
	systest.WantError(t, err, "--map /elsewhere=THERE")
}

// A memory holds files.
type memory map[string]string

func (m memory) Read(path string) (string, error) { return m[path], nil }
func (m memory) Write(path, text string) error {
	m[path] = text
	return nil
}

// A bridge that requires the wall does not ask a pool without one. Its own runner answers, and
// where it has none, the error says what to do.
func TestPoolWithoutTheWall(t *testing.T) {
	for _, walled := range []bool{false, true} {
		for _, hasLocal := range []bool{false, true} {
			local := &closing{Runner: queue.New(row, say())}
			cfg := Config{RequireWall: true, Connect: func(context.Context) (io.ReadWriteCloser, error) {
				return farEnd(func(l *link) {
					l.w.Encode(Welcome{Name: welcomeName, Protocol: Protocol, Walled: walled})
					if walled {
						req, _ := l.messages().ReadMessage()
						l.w.Encode(map[string]any{"id": req.ID, "error": map[string]any{"message": "the pool was asked"}})
					}
				}), nil
			}}
			if hasLocal {
				cfg.Local = func() (agent.Runner, error) { return local, nil }
			}
			c := NewClient(cfg)
			r, err := run(t, c, t.Context(), agent.Request{Prompt: "x"}, ignore)
			switch {
			case walled:
				systest.WantError(t, err, "the pool was asked")
			case hasLocal:
				if r.Answer != "said x" || err != nil {
					t.Errorf("got %+v, %v", r, err)
				}
			default:
				agenttest.WantKind(t, err, agent.Unenforceable, "bridge.wall", "pollux pool status")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// If no pool can be reached, a runner in the bridge answers, and later requests do not
// wait for a pool again.
func TestWithoutAPool(t *testing.T) {
	tries := 0
	local := &closing{Runner: queue.New(row, say())}
	c := NewClient(Config{
		Connect: func(context.Context) (io.ReadWriteCloser, error) {
			tries++
			return nil, errors.New("disk full")
		},
		Local: func() (agent.Runner, error) { return local, nil },
	})
	for range 3 {
		r, err := run(t, c, t.Context(), agent.Request{Prompt: "x"}, ignore)
		if err != nil || r.Answer != "said x" {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	if err := c.Close(); err != nil || tries != 1 || !local.closed {
		t.Errorf("%v, %d attempts, closed: %v", err, tries, local.closed)
	}
	if _, err := c.Run(t.Context(), agent.Request{}, ignore); !errors.Is(err, agent.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

type closing struct {
	*queue.Runner
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return c.Runner.Close()
}

// A bridge that uses the pool of another machine has no other runner.
func TestRemotePoolIsAway(t *testing.T) {
	c := newTestClient(t, "", func(cfg *Config) {
		cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) { return nil, errors.New("no route to host") }
	})
	if _, err := run(t, c, t.Context(), agent.Request{}, ignore); err == nil || err.Error() != "no route to host" {
		t.Errorf("got %v", err)
	}
}

// The conversations of a bridge end with its connection. A conversation whose ID is
// passed on belongs to the bridge that used it last.
func TestConversationsEndWithTheirBridge(t *testing.T) {
	path := socket(t)
	s := say()
	p := startPool(t, path, s, time.Hour)
	one, two := newTestClient(t, path, nil), newTestClient(t, path, nil)
	for _, use := range []struct {
		c       *Client
		session string
	}{{one, "a"}, {one, "b"}, {one, "c"}, {two, "b"}} {
		if _, err := run(t, use.c, t.Context(), agent.Request{Conversation: use.session}, ignore); err != nil {
			t.Fatal(err)
		}
	}
	two.Forget("c") // not its own
	one.Forget("c")
	forgotten := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprint(s.forgotten)
	}
	until(t, "c to be forgotten", func() bool { return forgotten() == "[c]" })
	one.Close()
	until(t, "a to be forgotten", func() bool { return forgotten() == "[c a]" })
	if st := p.status(); len(st.Sessions) != 1 || st.Sessions[0].Conversations != 1 {
		t.Errorf("%+v", st)
	}
}

// A bridge can continue a conversation whose ID it was given, with all that was said. It
// goes when the bridge that used it last does.
func TestConversationIsPassedOn(t *testing.T) {
	path := socket(t)
	startPool(t, path, say(), time.Hour)
	one, two := newTestClient(t, path, nil), newTestClient(t, path, nil)
	ctx := t.Context()
	use := func(c *Client) {
		t.Helper()
		if _, err := run(t, c, ctx, agent.Request{Conversation: "a"}, ignore); err != nil {
			t.Fatal(err)
		}
	}
	use(one)
	one.Keep("a", 1, []byte(`"first"`))
	one.Keep("not its own", 1, []byte(`"x"`))
	wants := func(c *Client, session string, n int, want string) {
		t.Helper()
		if data, err := c.Kept(ctx, session, n); err != nil || string(data) != want {
			t.Errorf("%s has %.20q, %v; want %.20q", session, data, err, want)
		}
	}
	wants(one, "a", 1, "")
	wants(two, "a", 0, `"first"`)
	wants(two, "not its own", 0, "")
	use(two)
	two.Keep("a", 2, []byte(`"second"`))
	wants(one, "a", 1, `"second"`)
	// The pool needs time to read a long conversation. Keep returned before it had done so, and the
	// client, which had the ID already, did not find it.
	long := `"` + strings.Repeat("long ", 1<<18) + `"`
	two.Keep("a", 3, []byte(long))
	wants(one, "a", 2, long)
	two.Keep("a", 2, []byte(`"second"`))
	wants(one, "a", 2, long)
	two.Close()
	until(t, "the end of the conversation", func() bool {
		data, err := one.Kept(ctx, "a", 1)
		return err == nil && data == nil
	})

	away := errors.New("away")
	three := NewClient(Config{Connect: func(context.Context) (io.ReadWriteCloser, error) { return nil, away }})
	defer three.Close()
	if data, err := three.Kept(ctx, "a", 0); !errors.Is(err, away) {
		t.Errorf("without a pool, it has %q, %v", data, err)
	}
}

// A pool answered with the settings of an agent from its own start. A change of them concerns later
// requests: those in progress end as they began.
func TestDefinitionChanges(t *testing.T) {
	var mu sync.Mutex
	var broken error
	now := "first"
	change := func(to string, err error) {
		mu.Lock()
		defer mu.Unlock()
		now, broken = to, err
	}
	closed := make(chan string, 2)
	release := make(chan struct{})
	p := startPool(t, socket(t), say(), time.Minute)
	p.Definition = func(string) (*agent.Definition, error) {
		mu.Lock()
		defer mu.Unlock()
		return &agent.Definition{Command: []string{now}}, broken
	}
	p.Open = func(name string, own *agent.Definition) (*queue.Runner, agent.Source, error) {
		command := own.Command[0]
		if command == "removed" {
			return nil, agent.Source{}, nil
		}
		r := &noticed{script: script{run: func(_ context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
			if req.Prompt == "wait" {
				emit(agent.Started{})
				<-release
			}
			return agent.Result{Answer: command}, nil
		}}, name: command, closed: closed}
		return queue.New(row, r), agent.Source{}, nil
	}
	c := newTestClient(t, p.path, nil)
	want := func(answer string) {
		t.Helper()
		r, err := run(t, c, t.Context(), agent.Request{Prompt: "x", Dir: t.TempDir()}, ignore)
		if err != nil || r.Answer != answer {
			t.Errorf("the answer is %q, %v; want %q", r.Answer, err, answer)
		}
	}
	want("first")
	started, waited := make(chan struct{}), make(chan agent.Result)
	go func() {
		r, _ := run(t, c, t.Context(), agent.Request{Prompt: "wait", Dir: t.TempDir()}, func(ev agent.Event) {
			if _, ok := ev.(agent.Started); ok {
				close(started)
			}
		})
		waited <- r
	}()
	<-started
	change("second", nil)
	want("second")
	select {
	case name := <-closed:
		t.Errorf("the %s runner is closed during a request", name)
	default:
	}
	close(release)
	if r := <-waited; r.Answer != "first" {
		t.Errorf("the request in progress is answered by %q", r.Answer)
	}
	if name := <-closed; name != "first" {
		t.Errorf("the %s runner is closed", name)
	}
	change("third", errors.New("the file is invalid"))
	want("second")
	change("removed", nil)
	_, err := run(t, c, t.Context(), agent.Request{Prompt: "x", Dir: t.TempDir()}, ignore)
	systest.WantError(t, err, `does not know the agent "test"`)
	if name := <-closed; name != "second" {
		t.Errorf("the %s runner is closed", name)
	}
}

// A noticed is a script whose end is noticed.
type noticed struct {
	script
	name   string
	closed chan<- string
}

func (c *noticed) Close() error {
	c.closed <- c.name
	return nil
}

// The pool ends when no bridge has asked it anything for a while, even if bridges are
// connected, and removes its socket. The next request starts another.
func TestIdlePoolEnds(t *testing.T) {
	path := socket(t)
	p := startPool(t, path, say(), 50*time.Millisecond)
	c := newTestClient(t, path, nil)
	if _, err := run(t, c, t.Context(), agent.Request{}, ignore); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the socket", func() bool { return !disk.Exists(path) })
	if err := p.end(); err != nil {
		t.Error(err)
	}
	startPool(t, path, say(), time.Hour)
	if r, err := run(t, c, t.Context(), agent.Request{Prompt: "x"}, ignore); err != nil || r.Answer != "said x" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// Of many processes that start a pool at the same time, one does. It replaces the socket
// of a pool that was killed, and no file remains.
func TestListenOnce(t *testing.T) {
	path := socket(t)
	if runtime.GOOS == "windows" {
		systest.WriteFile(t, path, `\\.\pipe\pollux-none`)
	} else {
		killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		killed.SetUnlinkOnClose(false)
		killed.Close()
	}
	won := make(chan *testPool, 10)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			l, err := Listen(t.Context(), path)
			switch {
			case errors.Is(err, ErrRunning):
			case err != nil:
				t.Error(err)
			default:
				ctx, cancel := context.WithCancel(context.Background())
				p := &testPool{Server: newServer(queue.New(row, say()), time.Hour)}
				served := make(chan error, 1)
				go func() { served <- p.Serve(ctx, l) }()
				p.end = func() error {
					cancel()
					return <-served
				}
				won <- p
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d pools were started", len(won))
	}
	for range len(won) {
		(<-won).end()
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A pool does not remove the socket of the pool that has replaced it.
func TestSocketOfAnother(t *testing.T) {
	path := socket(t)
	first := startPool(t, path, say(), time.Hour)
	os.Remove(path) // as a cleaner of temporary files does
	startPool(t, path, say(), time.Hour)
	first.end()
	if r, err := run(t, newTestClient(t, path, nil), t.Context(), agent.Request{Prompt: "x"}, ignore); err != nil || r.Answer != "said x" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// Something else in the place of the socket is not touched.
func TestListenRefuses(t *testing.T) {
	path := socket(t)
	systest.WriteFile(t, path, "mine")
	_, err := Listen(t.Context(), path)
	systest.WantError(t, err, "is not a socket: remove it")
	systest.WantFile(t, path, "mine")
}

// A pool does not serve a bridge of another version, or one that asks an unknown agent.
func TestWelcome(t *testing.T) {
	path := socket(t)
	startPool(t, path, say(), time.Hour)
	for _, tt := range []struct {
		hello Hello
		says  string
	}{
		{Hello{Protocol: 99, Agent: "test"}, "the pool is of Pollux test, which cannot talk to the version of this bridge: install"},
		{Hello{Protocol: Protocol, Agent: "other"}, `does not know the agent "other"`},
	} {
		conn, err := sock.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = greet(t.Context(), conn, &tt.hello)
		systest.WantError(t, err, tt.says)
	}
}

// An asked agent behind the wall reaches the pool's socket, but the pool, which is outside of the wall,
// runs no agent for it. It asked the pool for its own "Codex CLI", which wrote into the project.
func TestPoolServesNoAskedAgent(t *testing.T) {
	if path := os.Getenv("POLLUX_TEST_SOCKET"); path != "" { // behind the wall
		conn, err := sock.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _, err = greet(t.Context(), conn, &testHello)
		fmt.Println("greeted:", err)
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	path := socket(t)
	startPool(t, path, say(), time.Hour)
	for want, argv := range map[string][]string{"greeted: <nil>": nil, "no_new_privs": {setpriv, "--no-new-privs"}} {
		argv = append(argv, os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "POLLUX_TEST_SOCKET="+path)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s; want %q", argv, err, out, want)
		}
	}
}

// mute is a pool that answers no request.
func mute(l *link) {
	l.greeting(new(Hello))
	l.w.Encode(Welcome{Name: welcomeName, Protocol: Protocol})
	io.Copy(io.Discard, l.conn)
}

// A pool that does not answer counts as ended.
func TestMutePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled := false
		c := newTestClient(t, "", func(cfg *Config) {
			cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) {
				if dialled {
					return nil, errors.New("gone")
				}
				dialled = true
				return farEnd(mute), nil
			}
			cfg.Local = func() (agent.Runner, error) { return queue.New(row, say()), nil }
		})
		began := time.Now()
		if r, err := run(t, c, t.Context(), agent.Request{Prompt: "x"}, ignore); err != nil || r.Answer != "said x" {
			t.Errorf("got %+v, %v", r, err)
		}
		if took := time.Since(began); took != silenceTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// A request that was cancelled is released, although its pool no longer answers.
func TestMutePoolReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, "", func(cfg *Config) {
			cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) {
				return farEnd(mute), nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := run(t, c, ctx, agent.Request{}, ignore); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > silenceTimeout+time.Second {
			t.Errorf("it was released after %s", took)
		}
	})
}

// A pool that answers slowly does not count as silent.
func TestSlowAnswerIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, "", func(cfg *Config) {
			cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) {
				return farEnd(func(l *link) {
					var h Hello
					l.greeting(&h)
					l.w.Encode(Welcome{Name: welcomeName, Protocol: Protocol})
					req, _ := l.messages().ReadMessage()
					line := `{"jsonrpc":"2.0","method":"event","params":{"id":1,"outcome":{"result":{"Answer":"slow"}}}}` + "\n"
					for piece := range slices.Chunk([]byte(line), 10) {
						time.Sleep(silenceTimeout / 2)
						l.Write(piece)
					}
					l.w.Encode(map[string]any{"id": req.ID, "result": 0})
				}), nil
			}
		})
		if r, err := run(t, c, t.Context(), agent.Request{}, ignore); err != nil || r.Answer != "slow" {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

// The status names who is connected and who waits, but no connection that only asks for
// the status.
func TestStatus(t *testing.T) {
	path := socket(t)
	p := startPool(t, path, hang(), time.Hour)
	one, two := newTestClient(t, path, nil), newTestClient(t, path, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	turn := agent.Queue{Limit: 1, Timeout: time.Hour}
	wg.Go(func() { one.Run(ctx, agent.Request{Queue: turn}, ignore) })
	until(t, "the first", func() bool { l := p.runner.Loads(); return len(l) == 1 && l[0].Running == 1 })
	wg.Go(func() { two.Run(ctx, agent.Request{Queue: turn}, ignore) })
	until(t, "the second", func() bool { return p.runner.Loads()[0].Waiting == 1 })
	st, err := AskStatus(t.Context(), path)
	if err != nil || st.PID != os.Getpid() || len(st.Sessions) != 2 || len(st.Workers) != 1 || !st.Ends.IsZero() ||
		len(st.Queues) != 1 || st.Queues[0].Waiting != 1 || st.Queues[0].Callers[0].Caller != st.Sessions[1].Caller {
		data, _ := json.Marshal(st)
		t.Errorf("%v: %s", err, data)
	}
	for _, text := range []string{"pool of Pollux test", "bridge 7 in /w", "queue: 1 of 1 calls running, 1 waiting; next: session "} {
		if !slices.ContainsFunc(strings.Split(st.String(), "\n"), func(line string) bool { return strings.Contains(line, text) }) {
			t.Errorf("no %q in\n%s", text, st)
		}
	}
	cancel()
	wg.Wait()
}

// A line that is not a message, or no JSON, ends the connection and nothing else.
func FuzzServer(f *testing.F) {
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"protocol":2,"agent":"test"}` + "\n" + `{"jsonrpc":"2.0","id":1,"method":"run","params":{"id":1,"request":{"Dir":"/"}}}` + "\n"))
	f.Add([]byte(`{"protocol":2,"agent":"test"}` + "\n" + `{"jsonrpc":"2.0","method":"cancel","params":[]}` + "\nx\n"))
	f.Add([]byte(`{"protocol":2,"agent":"test"}` + "\n" + `{"jsonrpc":"2.0","id":null,"method":"status"}` + "\n" + `{"jsonrpc":"2.0","id":{},"result":1}`))
	s := newServer(queue.New(row, say()), time.Hour)
	s.init(func() {}, func() {})
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, ours)
		go func() {
			ours.Write(data)
			ours.Close()
		}()
		s.serve(t.Context(), theirs)
		theirs.Close()
		if len(s.conns)+len(s.conversations)+s.requests > 0 {
			t.Errorf("left: %v, %v, %d requests", s.conns, s.conversations, s.requests)
		}
	})
}
