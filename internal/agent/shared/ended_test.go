package shared

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/sys/systest"
)

// A puppet is an agent's runner that the test plays.
type puppet func(ctx context.Context, req agent.Request) (agent.Result, error)

func (p puppet) Attempt(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	return p(ctx, req)
}
func (puppet) Check(context.Context, agent.Source) (agent.Program, error) {
	return agent.Program{}, nil
}
func (puppet) Ahead(agent.Source, string) {}
func (puppet) Forget(string)              {}
func (puppet) Workers() []agent.Worker    { return nil }
func (puppet) Close() error               { return nil }

// answers returns a puppet that always gives the same answer.
func answers(text string) puppet {
	return func(_ context.Context, req agent.Request) (agent.Result, error) {
		req.Released()
		return agent.Result{Answer: text}, nil
	}
}

// A mortal is a pool whose end the test chooses. It listens in memory.
type mortal struct {
	*systest.Network
	server    *Server
	terminate func()        // ends the context of Serve
	ended     chan struct{} // closed when Serve has returned
	replaced  atomic.Bool   // whether bridges find another pool
	closing   func()        // called when the listener is about to be closed; may be nil
}

func newMortal(t *testing.T, run puppet) *mortal {
	t.Helper()
	m := &mortal{Network: systest.NewNetwork(), ended: make(chan struct{})}
	m.server = newServer(queue.New(row, run), time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	m.terminate = cancel
	go func() {
		defer close(m.ended)
		m.server.Serve(ctx, m)
	}()
	t.Cleanup(func() {
		cancel()
		<-m.ended
	})
	return m
}

// Close implements [net.Listener].
func (m *mortal) Close() error {
	if m.closing != nil {
		m.closing()
	}
	return m.Network.Close()
}

// Replaced implements [replaceable].
func (m *mortal) Replaced() bool { return m.replaced.Load() }

func (m *mortal) dial(ctx context.Context) (io.ReadWriteCloser, error) { return m.Dial(ctx, "", "") }

// clientOf returns a client of the first of several pools that still listens.
func clientOf(t *testing.T, pools ...*mortal) *Client {
	t.Helper()
	return connecting(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		for _, m := range pools {
			if conn, err := m.dial(ctx); err == nil {
				return conn, nil
			}
		}
		return nil, errors.New("no pool")
	})
}

// connecting returns a client without a local runner.
func connecting(t *testing.T, connect func(context.Context) (io.ReadWriteCloser, error)) *Client {
	t.Helper()
	c := NewClient(Config{
		Connect: connect, Hello: &Hello{Protocol: Protocol, Agent: "test"},
		Local: func() (agent.Runner, error) {
			t.Error("the client opened a runner of its own")
			return nil, errors.New("no local runner")
		},
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// stop does what `pollux pool stop` does.
func stop(t *testing.T, m *mortal, now bool) {
	t.Helper()
	conn, err := clientOf(t, m).connect(t.Context())
	if err == nil {
		err = conn.rpc.Call(t.Context(), methodStop, stopParams{Now: now}, nil)
	}
	if err != nil {
		t.Error(err)
	}
	systest.Until(t, func() bool { // it answers before it stops
		m.server.mu.Lock()
		defer m.server.mu.Unlock()
		return m.server.stopping
	})
}

func askOf(t *testing.T, c *Client, prompt string) (agent.Result, error) {
	t.Helper()
	return c.Run(t.Context(), agent.Request{Prompt: prompt}, func(agent.Event) {})
}

func wantAnswer(t *testing.T, c *Client, prompt, want string) {
	t.Helper()
	if r, err := askOf(t, c, prompt); err != nil || r.Answer != want {
		t.Errorf("%q is answered by %.40q, %v; want %.40q", prompt, r.Answer, err, want)
	}
}

// A new request to a pool that stops closed the connection, and with it the request that
// the pool still worked on.
func TestStoppingPoolFinishesItsRequests(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	var runs atomic.Int32
	first := newMortal(t, func(_ context.Context, req agent.Request) (agent.Result, error) {
		runs.Add(1)
		close(started)
		<-finish
		req.Released()
		return agent.Result{Answer: "of the first"}, nil
	})
	c := clientOf(t, first, newMortal(t, answers("of the second")))
	var slow sync.WaitGroup
	slow.Go(func() { wantAnswer(t, c, "slow", "of the first") })
	<-started
	stop(t, first, false)
	wantAnswer(t, c, "quick", "of the second")
	close(finish)
	slow.Wait()
	<-first.ended
	wantAnswer(t, c, "after it", "of the second")
	if n := runs.Load(); n != 1 {
		t.Errorf("the first pool was asked %d times", n)
	}
}

// A pool that stopped after its last request closed the connection while it wrote the
// answer.
func TestStoppingPoolDeliversItsAnswer(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<14)
	var first *mortal
	first = newMortal(t, func(ctx context.Context, req agent.Request) (agent.Result, error) {
		first.server.stop(false)
		return answers(big)(ctx, req)
	})
	wantAnswer(t, clientOf(t, first), "x", big)
	<-first.ended
}

// A pool that stopped refused requests while bridges still found it, and not the next one.
func TestStoppingPoolAnswersWhileItIsFound(t *testing.T) {
	first := newMortal(t, answers("of the first"))
	c := clientOf(t, first, newMortal(t, answers("of the second")))
	wantAnswer(t, c, "x", "of the first")
	first.closing = func() { wantAnswer(t, c, "x", "of the first") }
	first.server.stop(false)
	wantAnswer(t, c, "x", "of the second")
}

// A pool that ended at once cancelled its requests, and some bridges got the answer that
// their request was cancelled.
func TestEndingPoolAnswersNoRequest(t *testing.T) {
	for name, end := range map[string]func(m *mortal){
		"stopped":    func(m *mortal) { stop(t, m, true) },
		"terminated": func(m *mortal) { m.terminate() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 30 {
				started := make(chan struct{})
				first := newMortal(t, func(ctx context.Context, req agent.Request) (agent.Result, error) {
					close(started)
					<-ctx.Done()
					req.Released()
					return agent.Result{}, context.Cause(ctx)
				})
				c := clientOf(t, first, newMortal(t, answers("of the second")))
				go func() {
					<-started
					end(first)
				}()
				wantAnswer(t, c, "x", "of the second")
			}
		})
	}
}

// A pool ended before it had answered the request to stop.
func TestStopIsAnswered(t *testing.T) {
	for range 50 {
		m := newMortal(t, answers(""))
		stop(t, m, false)
		<-m.ended
	}
}

// The pool ends after the answer, and before it says that no process works on the
// request any more. In change mode, the bridge waits for that.
func TestReleasedWithTheConnection(t *testing.T) {
	for name, cancels := range map[string]bool{"answered": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			var release func()
			started := make(chan struct{})
			m := newMortal(t, func(_ context.Context, req agent.Request) (agent.Result, error) {
				release = req.Released
				close(started)
				if cancels { // it does not react
					<-t.Context().Done()
				}
				return agent.Result{Answer: "ok"}, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if cancels {
				go func() {
					<-started
					cancel()
				}()
			}
			released := make(chan struct{})
			c := clientOf(t, m)
			_, err := c.Run(ctx, agent.Request{Released: func() { close(released) }}, func(agent.Event) {})
			if (err != nil) != cancels {
				t.Error(err)
			}
			select {
			case <-released:
				t.Error("it was released too early")
			default:
			}
			m.Disconnect()
			<-released
			release()
		})
	}
}

// A request waits for its turn in a pool that ends. The pool releases it, and then says that
// another one must answer it. The caller thought that no process worked on it any more.
func TestReleasedByAnEndingPool(t *testing.T) {
	started := make(chan struct{})
	start := sync.OnceFunc(func() { close(started) })
	first := newMortal(t, func(ctx context.Context, req agent.Request) (agent.Result, error) {
		start() // the other request may get its turn in the moment in which the pool ends
		<-ctx.Done()
		req.Released()
		return agent.Result{}, context.Cause(ctx)
	})
	var release func()
	second := newMortal(t, func(_ context.Context, req agent.Request) (agent.Result, error) {
		if req.Prompt == "waits" {
			release = req.Released
		} else {
			req.Released()
		}
		return agent.Result{Answer: "of the second"}, nil
	})
	c := clientOf(t, first, second)
	turn := agent.Queue{Limit: 1}
	var other sync.WaitGroup
	other.Go(func() { c.Run(t.Context(), agent.Request{Queue: turn}, ignore) })
	<-started
	released := make(chan struct{})
	end := sync.OnceFunc(func() { go first.server.stop(true) })
	r, err := c.Run(t.Context(), agent.Request{Prompt: "waits", Queue: turn, Released: func() { close(released) }}, func(ev agent.Event) {
		if q, ok := ev.(agent.Queued); ok && q.Position > 0 {
			end()
		}
	})
	if err != nil || r.Answer != "of the second" {
		t.Errorf("got %+v, %v", r, err)
	}
	select {
	case <-released:
		t.Error("it was released too early")
	default:
	}
	release()
	<-released
	other.Wait()
}

// A killed bridge cancels nothing. Its requests end with its connection.
func TestRequestEndsWithItsBridge(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	m := newMortal(t, func(ctx context.Context, req agent.Request) (agent.Result, error) {
		close(started)
		<-ctx.Done()
		req.Released()
		close(ended)
		return agent.Result{}, context.Cause(ctx)
	})
	conn, err := m.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan io.ReadWriteCloser, 1)
	conns <- conn
	c := newTestClient(t, "", func(cfg *Config) {
		cfg.Connect = func(context.Context) (io.ReadWriteCloser, error) {
			select {
			case conn := <-conns:
				return conn, nil
			default:
				return nil, errors.New("no pool")
			}
		}
	})
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		askOf(t, c, "x")
	}()
	<-started
	conn.Close()
	<-ended
	<-asked
}

// A pool ended while it opened an agent. The bridge asks the next pool, and nothing stays open.
func TestPoolEndsWhileItOpensAnAgent(t *testing.T) {
	first := newMortal(t, answers("of the first"))
	open := first.server.Open
	opened := &closing{Runner: queue.New(row, answers("of the first"))}
	first.server.Open = func(name string, own *agent.Definition) (*queue.Runner, agent.Source, error) {
		_, from, err := open(name, own)
		first.server.stop(true)
		return queue.New(row, opened), from, err
	}
	wantAnswer(t, clientOf(t, first, newMortal(t, answers("of the second"))), "x", "of the second")
	<-first.ended
	if !opened.closed {
		t.Error("the runner is left open")
	}
}

// A caller that gave up while the client connected turned the pool off for all others.
func TestGivingUpIsNoFailureOfThePool(t *testing.T) {
	m := newMortal(t, answers("ok"))
	ctx, cancel := context.WithCancel(t.Context())
	c := connecting(t, func(opening context.Context) (io.ReadWriteCloser, error) {
		if ctx.Err() == nil {
			cancel()
			<-opening.Done()
			return nil, context.Cause(opening)
		}
		return m.dial(opening)
	})
	if _, err := c.Run(ctx, agent.Request{}, func(agent.Event) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantAnswer(t, c, "x", "ok")
}

// The pool ends between the connection and its welcome.
func TestPoolEndsDuringTheWelcome(t *testing.T) {
	m := newMortal(t, answers("ok"))
	first := true
	c := connecting(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		if first {
			first = false
			return farEnd(func(l *link) { l.greeting(new(Hello)) }), nil
		}
		return m.dial(ctx)
	})
	wantAnswer(t, c, "x", "ok")
}

// A pool that bridges no longer find, because another one has taken its place, ends after
// its last request, and not only when it has been idle for long.
func TestReplacedPoolEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMortal(t, func(ctx context.Context, req agent.Request) (agent.Result, error) {
			time.Sleep(10 * time.Minute) // longer than the pool takes to notice, and to look again
			return answers("ok")(ctx, req)
		})
		c := clientOf(t, m)
		wantAnswer(t, c, "x", "ok")
		m.replaced.Store(true)
		began := time.Now()
		wantAnswer(t, c, "y", "ok")
		<-m.ended
		if took := time.Since(began); took >= m.server.IdleTimeout {
			t.Errorf("it ended after %s", took)
		}
	})
}
