package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A testSession is the session of an agent's package.
type testSession struct{ *Session }

func (*testSession) echo(_ context.Context, c *Call) (*Result, error) {
	return Text(string(c.Args)), nil
}
func (*testSession) fail(context.Context, *Call) (*Result, error) { return nil, errors.New("no") }

// A fixture is a server with a table of tools. Its sessions share the channels.
type fixture struct {
	*Server
	t        *testing.T
	joined   chan *testSession
	gone     chan *testSession
	later    chan *Call    // the calls that wait for an answer
	started  chan string   // the names of tools that have begun
	proceed  chan struct{} // lets "slow" and "aside" continue
	received chan string
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{
		t: t, joined: make(chan *testSession, 10), gone: make(chan *testSession, 10),
		later: make(chan *Call, maxCalls+1), started: make(chan string, 10), proceed: make(chan struct{}), received: make(chan string, 10),
	}
	f.Server = New(Config{Title: "Test", Version: "1", Log: slog.New(slog.DiscardHandler), MaxSessions: 3})
	return f
}

// open makes a session.
func (f *fixture) open() (*testSession, error) {
	s := &testSession{}
	block := func(ctx context.Context, c *Call) (*Result, error) {
		f.started <- string(c.Args)
		select {
		case <-f.proceed:
			return Text("done"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var err error
	s.Session, err = f.NewSession(Dialect{
		Connected:    func() { f.joined <- s },
		Disconnected: func() { f.gone <- s },
		Tools: []Tool{
			{Name: "echo", Schema: "{}", Run: s.echo},
			{Name: "fail", Schema: "{}", Run: s.fail},
			{Name: "slow", Schema: "{}", Run: block},
			{Name: "aside", Schema: `{"type":"object"}`, Run: block, Concurrent: true},
			{Name: "later", Schema: "{}", Run: func(_ context.Context, c *Call) (*Result, error) {
				c.OnCanceled(func() { c.Answer(Text("canceled"), nil, nil) })
				f.later <- c
				return nil, ErrLater
			}},
		},
		Received: func(method string, params json.RawMessage) {
			if !strings.Contains(method, "/") && method != "initialize" && method != "ping" {
				f.received <- method + " " + string(params)
			}
		},
	})
	return s, err
}

// A pipe is a connection without a buffer.
type pipe struct {
	in, out chan string
	ended   chan struct{}
	close   func()
}

func newPipe() *pipe {
	p := &pipe{in: make(chan string), out: make(chan string), ended: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.ended) })
	return p
}

func (p *pipe) Read(context.Context) ([]byte, error) {
	select {
	case text := <-p.in:
		return []byte(text), nil
	case <-p.ended:
		return nil, io.EOF
	}
}

func (p *pipe) Write(_ context.Context, frame []byte) error {
	select {
	case p.out <- string(frame):
		return nil
	case <-p.ended:
		return io.ErrClosedPipe
	}
}

func (p *pipe) Close() error { p.close(); return nil }

// An agent is the other side of a session.
type agent struct {
	*pipe
	t       *testing.T
	session *testSession
	id      int
}

// dial opens a connection.
func (f *fixture) dial() *agent {
	f.t.Helper()
	s, err := f.open()
	if err != nil {
		f.t.Fatal(err)
	}
	return serve(f.t, s)
}

// serve serves an agent until the end of the test.
func serve(t *testing.T, s *testSession) *agent {
	a := &agent{pipe: newPipe(), t: t, session: s}
	go s.Serve(a.pipe)
	t.Cleanup(a.close)
	return a
}

const hello = `{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"agent","version":"1.2"}}`

// connect connects an agent.
func (f *fixture) connect() *agent {
	f.t.Helper()
	a := f.dial()
	a.want(a.request("initialize", hello), `"2025-06-18"`)
	a.in <- `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	<-f.joined
	return a
}

// request sends a request, and returns its ID.
func (a *agent) request(method, params string) int {
	a.id++
	a.in <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.id, method, params)
	return a.id
}

func (a *agent) call(tool, args string) int {
	return a.request("tools/call", `{"_meta":{"x":1},"name":"`+tool+`","arguments":`+args+`}`)
}

// want checks the next message: the answer to a request.
func (a *agent) want(id int, part string) {
	a.t.Helper()
	got := <-a.out
	if !strings.HasPrefix(got, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,`, id)) || !strings.Contains(got, part) {
		a.t.Errorf("received %s, want an answer to %d with %s", got, id, part)
	}
}

// receives checks the whole next message.
func (a *agent) receives(want string) {
	a.t.Helper()
	if got := <-a.out; got != want {
		a.t.Errorf("received %s, want %s", got, want)
	}
}

// silent checks that nothing is being written.
func (a *agent) silent() {
	a.t.Helper()
	synctest.Wait()
	select {
	case got := <-a.out:
		a.t.Errorf("received %s", got)
	default:
	}
}

// text is a part of an answer.
func text(s string) string { return `"text":"` + s + `"` }

// run runs a test in a bubble.
func run(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		test(t, f)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.Close(ctx)
	})
}

func TestInitialize(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.dial()
		for version, want := range map[string]string{
			"2024-11-05": "2024-11-05", "2025-11-25": "2025-11-25", "2025-03-26": "2025-11-25", "1999-01-01": "2025-11-25", "2026-07-28": "2025-11-25",
		} {
			a.want(a.request("initialize", strings.Replace(hello, "2025-06-18", version, 1)),
				`{"protocolVersion":"`+want+`","capabilities":{"tools":{}},"serverInfo":{"name":"pollux","title":"Test","version":"1"}}`)
		}
		a.want(a.request("initialize", "[]"), "-32602")
		a.in <- `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		s := <-f.joined
		if name, version := s.ClientInfo(); name != "agent" || version != "1.2" || s != a.session {
			t.Errorf("%s %s has connected", name, version)
		}
		a.in <- `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		a.close()
		if <-f.gone != s || len(f.joined) != 0 {
			t.Error("another session has connected or ended")
		}
	})
}

func TestMethods(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		a.want(a.request("ping", "{}"), `"result":{}`)
		a.want(a.request("tools/list", "{}"), `{"name":"aside","description":"","inputSchema":{"type":"object"}}`)
		a.want(a.request("server/discover", "{}"), "-32601")
		a.want(a.call("none", "{}"), "-32602")
		a.want(a.call("echo", `{"a":[1]}`), `{"content":[{"type":"text","text":"{\"a\":[1]}"}]}`)
		a.want(a.call("fail", "{}"), `{"content":[{"type":"text","text":"no"}],"isError":true}`)
		a.in <- `{"jsonrpc":"2.0","method":"extra","params":{"pid":1}}`
		if got := <-f.received; got != `extra {"pid":1}` {
			t.Errorf("the dialect has received %s", got)
		}
		a.in <- `{"jsonrpc":"2.0","id":"text <&>","method":"ping"}`
		a.receives(`{"jsonrpc":"2.0","id":"text <&>","result":{}}`)
	})
}

// What is not a message is answered with an error, once for each.
func TestNotMessages(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.dial()
		for sent, code := range map[string]string{
			"no JSON": "-32700", `{"jsonrpc":`: "-32700", "\xff\xfe": "-32700", strings.Repeat("[", 1<<16): "-32700",
			`{"jsonrpc":"2.0","id":1,"method":"ping"} {"jsonrpc":"2.0","id":2,"method":"ping"}`: "-32700",
			"[]": "-32600", "[5]": "-32600", "{}": "-32600", "null": "-32600", "42": "-32600", `{"jsonrpc":"2.0"}`: "-32600",
			`{"jsonrpc":"1.0","id":1,"method":"ping"}`: "-32600", `{"jsonrpc":"2.0","id":{},"method":"ping"}`: "-32600",
			`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                  "-32600",
			`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID) + `","method":"ping"}`: "-32600",
		} {
			a.in <- sent
			if got := <-a.out; !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":null,"error":{"code":`+code+`,"message":"`) {
				t.Errorf("%.50q is answered with %s", sent, got)
			}
			a.silent()
		}
	})
}

// One version of MCP has batches.
func TestBatch(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.dial()
		a.in <- ` [{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + hello + `},` +
			`{"jsonrpc":"2.0","method":"notifications/initialized"}, 5, {"jsonrpc":"2.0","id":2,"method":"ping"}]`
		a.want(1, "pollux")
		<-f.joined
		if got := <-a.out; !strings.Contains(got, "-32600") {
			t.Error(got)
		}
		a.want(2, "{}")
	})
}

// What says nothing to the server, or comes too early, does no harm.
func TestOddMessages(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.dial()
		odd := []string{
			"", " \n",
			`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"x","error":{}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
			`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"later"}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		}
		for _, text := range odd {
			a.in <- text
		}
		a.silent()
		a.want(a.request("ping", "{}"), "{}")
		a.want(a.call("later", "{}"), "send initialize first")
		a.want(a.request("tools/call", `{"name":"later",`+introduction+`}`), "send initialize first") // of a version that is not served
		a.want(a.request("initialize", hello), "pollux")
		a.want(a.call("later", "{}"), "isError")
		for _, text := range odd {
			a.in <- text
		}
		<-f.joined
		a.silent()
		if len(f.later) != 0 {
			t.Error("a call that nobody waits for, or one that came too early, has taken effect")
		}
		a.want(a.request("tools/call", `{"name":5}`), "-32602")
	})
}

// Calls take effect in the order in which they arrived.
func TestOrder(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		slow := a.call("slow", "1")
		if got := <-f.started; got != "1" {
			t.Errorf("%s has begun", got)
		}
		later, echo, second := a.call("later", "2"), a.call("echo", "3"), a.call("slow", "4")
		a.silent()
		if len(f.started)+len(f.later) != 0 {
			t.Error("a call has not waited for the first one")
		}
		f.proceed <- struct{}{}
		a.want(slow, "done")
		a.want(echo, text("3"))
		c := <-f.later
		c.Answer(Text("x"), nil, nil)
		a.want(later, text("x"))
		f.proceed <- struct{}{}
		a.want(second, "done")
	})
}

// A concurrent call delays no other one, nor is it delayed. If the agent cancels it, it has no
// answer, and its ID can be used again.
func TestConcurrent(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		a.call("slow", "1")
		aside := a.call("aside", "2")
		<-f.started
		<-f.started
		a.in <- fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, aside)
		a.silent()
		a.id = aside - 1
		a.want(a.request("ping", "{}"), "{}")
	})
}

// An answer may come hours later. Its sender learns that it was written, once.
func TestLater(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		first, second := a.call("later", "{}"), a.call("later", "{}")
		one, two := <-f.later, <-f.later
		time.Sleep(24 * time.Hour)
		if one.Args != nil {
			t.Error("the arguments are still in memory")
		}
		written := make(chan error, 10)
		two.Answer(Text("2", strings.Repeat("é\n", 1<<20)), nil, func(err error) { written <- err })
		synctest.Wait()
		if len(written) != 0 {
			t.Error("an answer was reported that nobody has read")
		}
		a.want(second, text("2"))
		if err := <-written; err != nil {
			t.Error(err)
		}
		two.Answer(Text("again"), nil, func(err error) { written <- err })
		if err := <-written; err == nil {
			t.Error("a second answer was written")
		}
		a.silent()
		one.Answer(nil, errors.New("no"), nil)
		a.want(first, `"isError":true`)
	})
}

// A cancellation takes effect after all earlier messages, and only once.
func TestCanceled(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		slow, later, other := a.call("slow", "1"), a.call("later", "2"), a.call("later", "3")
		<-f.started
		for range 2 {
			a.in <- fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, later)
		}
		a.silent()
		f.proceed <- struct{}{}
		a.want(slow, "done")
		a.want(later, text("canceled"))
		<-f.later
		c := <-f.later
		a.silent()
		c.Answer(nil, nil, nil)
		a.want(other, `"content":[]`)
	})
}

// A second request with the ID of an open one has no effect on it.
func TestSameID(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		id := a.call("later", "{}")
		c := <-f.later
		a.id--
		a.call("later", "{}")
		a.silent()
		if len(f.later) != 0 {
			t.Error("it has taken effect")
		}
		c.Answer(Text("x"), nil, nil)
		a.want(id, text("x"))
		a.id--
		a.want(a.call("echo", "1"), text("1"))
	})
}

func TestLimits(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		for range maxCalls {
			a.call("later", "{}")
		}
		a.want(a.call("echo", "{}"), errTooMuch.Error())
		a.want(a.request("ping", "{}"), "{}")
		(<-f.later).Answer(nil, nil, nil)
		a.want(2, "content")
		a.want(a.call("echo", "1"), text("1"))

		f.dial()
		last := f.dial()
		if _, err := f.open(); err == nil {
			t.Error("too many sessions")
		}
		last.close()
		synctest.Wait()
		s, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		s.Discard()
		if n := f.Sessions(); n != 2 {
			t.Errorf("%d sessions", n)
		}
	})
}

// An agent that does not read delays its own messages only. If too much waits for it, its session
// ends.
func TestSlowReader(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a, other := f.connect(), f.connect()
		written := make(chan error, 1)
		a.call("later", "{}")
		(<-f.later).Answer(Text("x"), nil, func(err error) { written <- err })
		for range maxOutbox {
			a.request("ping", "{}")
		}
		other.want(other.call("echo", "1"), text("1"))
		if len(f.gone) != 0 {
			t.Error("the session has ended too early")
		}
		for range 3 {
			select {
			case a.in <- `{"jsonrpc":"2.0","id":1,"method":"ping"}`:
			case <-a.ended:
			}
		}
		if <-f.gone != a.session {
			t.Error("another session has ended")
		}
		if err := <-written; err == nil {
			t.Error("an answer that nobody has read was reported")
		}
	})
}

// The companion has the session until its last call has returned. What was not written is reported.
func TestEnd(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		a.call("later", "{}")
		c := <-f.later
		stubborn, release := make(chan bool), make(chan bool)
		a.session.Go(func() { close(stubborn); <-release })
		<-stubborn
		a.close()
		synctest.Wait()
		if len(f.gone) != 0 {
			t.Error("the session was disconnected before its goroutine returned")
		}
		written := make(chan error, 2)
		c.Answer(nil, nil, func(err error) { written <- err })
		a.session.Notify("x", nil, 0, func(err error) { written <- err })
		close(release)
		<-f.gone
		for range 2 {
			if err := <-written; err == nil {
				t.Error("a message was written after the end")
			}
		}
		a.session.Notify("x", nil, 0, func(err error) { written <- err })
		if err := <-written; err == nil {
			t.Error("a message was written after the end")
		}
		if err := a.session.Send(t.Context(), "x", nil); err == nil {
			t.Error("a message was sent after the end")
		}
		a.session.Go(func() { t.Error("a goroutine starts after the end") })
	})
}

// A server that closes waits for its answers, but not for ever.
func TestClose(t *testing.T) {
	for name, reads := range map[string]bool{"reads": true, "does not read": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, f *fixture) {
				a := f.connect()
				id := a.call("later", "{}")
				f.dial() // has said nothing
				(<-f.later).Answer(Text("x"), nil, nil)
				closed := make(chan bool)
				go func() {
					defer close(closed)
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					f.Close(ctx)
				}()
				synctest.Wait()
				if reads {
					a.want(id, text("x"))
				}
				began := time.Now()
				<-closed
				if waited := time.Since(began); waited > time.Minute || reads && waited > 0 {
					t.Errorf("it took %s", waited)
				}
				if _, err := f.open(); err == nil || f.Sessions() != 0 {
					t.Errorf("a closed server: %v, %d sessions", err, f.Sessions())
				}
			})
		})
	}
}

// A server that closes waits until the companion has no session any more.
func TestCloseWaitsForDisconnected(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		f.gone = make(chan *testSession) // Disconnected waits until it is received
		f.connect().close()
		closed := make(chan bool)
		go func() {
			defer close(closed)
			f.Close(t.Context())
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned before Disconnected")
		default:
		}
		<-f.gone
		<-closed
	})
}

// Notifications are written in order, and encoded once if the caller wants.
func TestNotify(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		written := make(chan error, 1)
		a.session.Notify("a", json.RawMessage(`{"x":"<"}`), 0, func(err error) { written <- err })
		sent := make(chan error, 1)
		go func() { sent <- a.session.Send(t.Context(), "b", struct{}{}) }()
		synctest.Wait()
		if len(written)+len(sent) != 0 {
			t.Error("a message was reported that nobody has read")
		}
		for _, want := range []string{`{"jsonrpc":"2.0","method":"a","params":{"x":"<"}}`, `{"jsonrpc":"2.0","method":"b","params":{}}`} {
			a.receives(want)
		}
		if err := errors.Join(<-written, <-sent); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.session.Send(ctx, "c", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("to an agent that does not read: %v", err)
		}
	})
}

// A result can have more than texts. A tool can report progress.
func TestResult(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		no := false
		s, err := f.NewSession(Dialect{Tools: []Tool{{
			Name: "full", Schema: "{}", Output: `{"type":"object"}`, Meta: map[string]any{"x": 1},
			Hints: &Hints{Title: "Full", ReadOnly: true, Destructive: &no}, Concurrent: true,
			Run: func(ctx context.Context, c *Call) (*Result, error) {
				if report := c.Reporter(ctx); report != nil {
					report("half")
					report("done")
				}
				return &Result{Texts: []string{"a", "b"}, Structured: map[string]int{"n": 1}, Meta: map[string]any{"m": 2}, IsError: true}, nil
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		a := serve(t, &testSession{s})
		a.want(a.request("initialize", hello), "pollux")
		a.want(a.request("tools/list", "{}"), `{"tools":[{"name":"full","title":"Full","description":"","inputSchema":{},`+
			`"outputSchema":{"type":"object"},"annotations":{"title":"Full","readOnlyHint":true,"destructiveHint":false},"_meta":{"x":1}}]}`)
		const result = `{"_meta":{"m":2},"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"structuredContent":{"n":1},"isError":true}`
		a.want(a.call("full", "{}"), result)
		for _, token := range []string{`7`, `"t"`} {
			id := a.request("tools/call", `{"name":"full","_meta":{"progressToken":`+token+`}}`)
			for i, message := range []string{"half", "done"} {
				want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, token, i+1, message)
				a.receives(want)
			}
			a.want(id, result)
		}
	})
}

func TestRoots(t *testing.T) {
	for answer, want := range map[string]string{
		`"result":{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}`: "[file:///a file:///b] <nil>",
		`"result":{"roots":5}`:                   "[] json",
		`"error":{"code":-32601,"message":"no"}`: "[] no",
	} {
		run(t, func(t *testing.T, f *fixture) {
			a := f.connect()
			got := make(chan string, 1)
			go func() { uris, err := a.session.Roots(t.Context()); got <- fmt.Sprint(uris, err) }()
			a.receives(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			a.in <- `{"jsonrpc":"2.0","id":2,"result":{}}`
			a.in <- `{"jsonrpc":"2.0","id":1,` + answer + `}`
			if got := <-got; !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s", answer, got)
			}
		})
	}
	run(t, func(t *testing.T, f *fixture) {
		a := f.dial()
		if uris, err := a.session.Roots(t.Context()); uris != nil || err != nil {
			t.Errorf("an agent without roots was asked: %v", err)
		}
	})
	run(t, func(t *testing.T, f *fixture) {
		a := f.connect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := make(chan error, 1)
		go func() { _, err := a.session.Roots(ctx); got <- err }()
		<-a.out
		if err := <-got; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an agent that does not answer: %v", err)
		}
		a.receives(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	})
}

// FuzzReceive checks that no message stops a session.
func FuzzReceive(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"a":"\ud800\u0000"}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"initialize","params":` + hello + `}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[]}`, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "\xff", "[]",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`, `{"JSONRPC":"2.0","Id":1,"method":"ping"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fix := newFixture(t)
		s, err := fix.open()
		if err != nil {
			t.Fatal(err)
		}
		p := newPipe()
		go s.Serve(p)
		var answers []string
		for _, message := range []string{
			`{"jsonrpc":"2.0","id":-1,"method":"initialize","params":` + hello + `}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`, string(data), `{"jsonrpc":"2.0","id":"last","method":"ping"}`,
		} {
			for sent := false; !sent; {
				select {
				case p.in <- message:
					sent = true
				case got := <-p.out:
					answers = append(answers, got)
				}
			}
		}
		for last := ""; !strings.HasPrefix(last, `{"jsonrpc":"2.0","id":"last"`); answers = append(answers, last) {
			last = <-p.out
		}
		for _, answer := range answers {
			if !json.Valid([]byte(answer)) {
				t.Errorf("%q answers %q", data, answer)
			}
		}
		p.close()
		fix.Close(context.Background())
	})
}
