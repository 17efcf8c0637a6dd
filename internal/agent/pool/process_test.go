package pool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/agent/agenttest"
	"pollux/internal/sys/systest"
)

func idleProcess() *process {
	return newProcess(&agent.Agent{Driver: agent.Driver{Warm: new(agent.Process)}}, agent.Source{}, agent.Program{}, key{}, agent.Wall{}, slog.New(slog.DiscardHandler))
}

// A creator is an agent that creates a session each time create is called.
type creator struct {
	t        *testing.T
	requests chan json.RawMessage // their IDs
	out      io.Writer
	created  int
}

// newCreator connects a process to a creator.
func newCreator(t *testing.T, w *process) *creator {
	t.Helper()
	in, toAgent := io.Pipe()
	fromAgent, out := io.Pipe()
	w.conn, w.timeout = acp.NewConn(fromAgent, toAgent, false, w, nil), time.Minute
	c := &creator{t: t, requests: make(chan json.RawMessage, 100), out: out}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil || m.Method != "session/new" {
				t.Errorf("it receives %q, %v", lines.Text(), err)
			}
			c.requests <- m.ID
		}
	}()
	t.Cleanup(func() {
		w.conn.Close()
		<-read
	})
	return c
}

// create answers the oldest request for a session.
func (c *creator) create() {
	c.t.Helper()
	synctest.Wait()
	select {
	case id := <-c.requests:
		c.created++
		fmt.Fprintf(c.out, `{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"s%d"}}`+"\n", id, c.created)
		synctest.Wait()
	default:
		c.t.Error("nobody asks for a session")
	}
}

// take asks for a session in the background.
func take(t *testing.T, w *process) <-chan *session {
	taken := make(chan *session, 1)
	go func() {
		s, err := w.session(t.Context())
		if err != nil {
			t.Error(err)
		}
		taken <- s
	}()
	return taken
}

// A session whose request gave up serves the next request, which creates no
// other.
func TestGivenUpSessionIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 500 { // the order of two goroutines matters
			w := idleProcess()
			c := newCreator(t, w)
			impatient, giveUp := context.WithCancel(t.Context())
			go w.session(impatient)
			synctest.Wait()
			taken := take(t, w)
			synctest.Wait()
			giveUp()
			c.create()
			if n := len(c.requests); n > 0 {
				c.create()
				t.Fatal("another session is created")
			}
			if s := <-taken; s == nil || s.id != "s1" {
				t.Fatalf("it has %+v", s)
			}
		}
	})
}

// A request waits for at most one session that is being prepared, however many
// requests have just ended.
func TestRequestWaitsForOnePreparation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleProcess()
		c := newCreator(t, w)
		p := newPool(new(agent.Agent), agent.Options{})
		defer p.cancel(nil)
		w.demand = maxPrepared
		for range maxPrepared {
			p.tasks.Go(func() { p.prepare(w) })
		}
		synctest.Wait()
		taken := make(chan string, 1)
		go func() {
			s, err := w.session(t.Context())
			if err != nil {
				t.Error(err)
			}
			taken <- s.id
		}()
		synctest.Wait()
		c.create()
		select {
		case id := <-taken:
			if id != "s1" {
				t.Errorf("it has %q", id)
			}
		default:
			t.Error("it still waits")
		}
		for range maxPrepared {
			c.create()
		}
		p.tasks.Wait()
		if n := len(w.prepared); n != maxPrepared || c.created != maxPrepared+1 || len(c.requests) > 0 {
			t.Errorf("%d are prepared, %d created", n, c.created)
		}
	})
}

// The next session is prepared while the model answers: after the prompt was on its way,
// or at once if the next request would have to wait.
func TestPreparedDuring(t *testing.T) {
	for _, test := range []struct {
		name     string
		waited   int // recent requests that had to wait for a session
		prepared int
		delay    time.Duration
	}{
		{"now and then", 1, 0, prepareDelay},
		{"in a burst", 2, 0, burstDelay},
		{"after a burst", 2, 1, prepareDelay},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := idleProcess()
				c := newCreator(t, w)
				p := newPool(new(agent.Agent), agent.Options{})
				defer p.cancel(nil)
				w.running, w.demand = 1, test.waited
				for range test.prepared {
					w.addPrepared(&session{w: w})
				}
				p.tasks.Go(func() { p.prepareDuring(t.Context(), w) })
				time.Sleep(test.delay - time.Nanosecond)
				synctest.Wait()
				if n := len(c.requests); n > 0 {
					t.Errorf("it asks for %d before %v", n, test.delay)
				}
				time.Sleep(time.Nanosecond)
				c.create()
			})
		})
	}
}

// A process that gets no new requests prepares no session, even while it still
// answers one.
func TestRetiredProcessPreparesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleProcess()
		c := newCreator(t, w)
		p := newPool(new(agent.Agent), agent.Options{})
		defer p.cancel(nil)
		w.running, w.retired = 1, true
		p.tasks.Go(func() { p.prepareDuring(t.Context(), w) })
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(c.requests); n > 0 {
			t.Errorf("it asks for %d", n)
			c.create()
		}
		p.tasks.Wait()
	})
}

// idlePool returns a pool for one process of an agent that does not exist.
func idlePool() *Pool {
	row := &agent.Agent{
		Finder: agent.Finder{
			Environment: func(agent.Env) []string { return nil },
			Locate: func(agent.Source) (agent.Program, error) {
				return agent.Program{Path: "/none", Version: "1.0.0"}, nil
			},
			ReadOnly: func(agent.Source, agent.Program) error { return nil },
		},
		Driver: agent.Driver{Warm: &agent.Process{Inputs: func(agent.Source, agent.Program, string) []string { return nil }}},
	}
	return newPool(row, agent.Options{Warm: agent.Limits{Processes: 1}})
}

// A start ahead ends no other process. A request does.
func TestAheadEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, other := idlePool(), idleProcess()
		defer p.cancel(nil)
		p.all[other], p.current[key{}] = true, other
		p.startAhead(agent.Source{}, "/there")
		if len(p.starting) > 0 || other.retired {
			t.Errorf("starting: %v; the other is retired: %v", p.starting, other.retired)
		}
		if !p.roomLocked(key{dir: "/there"}, true) || !other.retired {
			t.Error("a request gets no room")
		}
	})
}

// How long a request waits for a process that was started ahead does not depend on
// when that was. Later requests wait no longer than the first one.
func TestWaitForAStartAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := idlePool(), idleProcess()
		defer p.cancel(nil)
		p.agent.OneShot = new(agent.Process)
		p.starting[key{}] = w
		ahead := make(chan error)
		go func() {
			_, err := p.process(t.Context(), agent.Source{}, agent.Program{}, key{}, "", true)
			ahead <- err
		}()
		time.Sleep(30 * time.Second)
		for _, want := range []time.Duration{p.limits.WaitTimeout, 0} {
			began := time.Now()
			_, err := p.process(t.Context(), agent.Source{}, agent.Program{}, key{}, "", false)
			if took := time.Since(began); !errors.Is(err, errCold) || took != want {
				t.Errorf("after %s: %v", took, err)
			}
		}
		close(w.ready)
		if err := <-ahead; err != nil || w.running != 0 {
			t.Errorf("%v, %d running", err, w.running)
		}
	})
}

// The settings have changed since a process started. A request neither waits for it nor uses
// it.
func TestStartWithOlderSettings(t *testing.T) {
	p, w := idlePool(), idleProcess()
	defer p.cancel(nil)
	w.inputs = "older"
	p.starting[key{}] = w
	// It is not ready yet.
	if _, err := p.process(t.Context(), agent.Source{}, agent.Program{}, key{}, "", false); !errors.Is(err, errCold) || w.running > 0 {
		t.Errorf("%v; %d running", err, w.running)
	}
}

// An agent says right before its answer that it ignores its policy. The answer is none of a
// read-only agent.
func TestPolicyIgnoredAtTheEnd(t *testing.T) {
	w := idleProcess()
	w.unenforced = true
	_, err := w.conclude(newAttempt(w.agent, nil, false), "", agent.PromptResult{}, nil, time.Minute)
	var fault *agent.Error
	if !errors.As(err, &fault) || fault.Kind != agent.Unenforceable {
		t.Errorf("the error is %v", err)
	}
}

// A request that waits for its turn to create a session takes the one that was
// prepared meanwhile.
func TestPreparedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleProcess()
		w.making <- struct{}{} // a session is being prepared
		taken := take(t, w)
		synctest.Wait()
		want := &session{w: w, id: "prepared"}
		w.addPrepared(want)
		<-w.making
		if s := <-taken; s != want {
			t.Errorf("it has %+v", s)
		}
		select {
		case w.making <- struct{}{}:
		default:
			t.Error("no other request can create a session")
		}
	})
}

// A process prepares as many sessions as requests had to wait for, within a
// bound, and fewer once prepared ones were not used.
func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleProcess()
		const limit = 100
		fill := func(want int) {
			t.Helper()
			for i := 0; w.lacks(limit) && i < limit; i++ {
				w.addPrepared(&session{w: w})
			}
			if n := len(w.prepared); n != want {
				t.Errorf("%d are prepared, want %d", n, want)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		// burst asks n times at once. None can be created.
		burst := func(n int) {
			t.Helper()
			w.making <- struct{}{}
			for range n {
				w.session(gone)
			}
			<-w.making
		}
		fill(1)
		burst(4) // one is prepared, three are missing
		fill(3)
		burst(3)
		fill(3) // as before
		burst(100)
		fill(maxPrepared)
		burst(maxPrepared - 2)
		time.Sleep(preparedTTL + time.Second)
		fill(maxPrepared - 2)
		time.Sleep(preparedTTL + time.Second)
		fill(1)
		w.sessions = limit
		burst(1)
		fill(0)
	})
}

// A question gets the process that was started ahead, also if the start ahead sees first that
// it is ready.
func TestStartAheadLeavesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 500 { // the order of two goroutines matters
			p, w := idlePool(), idleProcess()
			p.agent.Warm.Single = true
			p.starting[key{}] = w
			go p.process(t.Context(), agent.Source{}, agent.Program{}, key{}, "", true)
			synctest.Wait()
			got := make(chan error, 1)
			go func() {
				_, err := p.process(t.Context(), agent.Source{}, agent.Program{}, key{}, "", false)
				got <- err
			}()
			synctest.Wait()
			close(w.ready)
			if err := <-got; err != nil || w.running != 1 {
				t.Fatalf("%v; %d running", err, w.running)
			}
			p.cancel(nil)
		}
	})
}

// A process that begins another conversation no longer holds the one before, also if the
// request for it has given up.
func TestConversationEndsAtTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := idleProcess()
		w.agent.Warm.Single = true
		c := newCreator(t, w)
		taken := take(t, w)
		c.create()
		first := <-taken
		if !first.continues() {
			t.Fatal("the conversation does not continue")
		}
		impatient, giveUp := context.WithCancel(t.Context())
		go w.session(impatient)
		synctest.Wait()
		giveUp()
		synctest.Wait()
		if first.continues() {
			t.Error("the conversation continues while the next one begins")
		}
		c.create()
	})
}

// A muteConn creates only one session.
type muteConn struct{ *fakeConn }

func (m muteConn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	m.mu.Lock()
	mute := m.sessions > 0
	m.mu.Unlock()
	if mute {
		<-ctx.Done()
		return agent.Session{}, context.Cause(ctx)
	}
	return m.fakeConn.NewSession(ctx, dir)
}

// A process that no longer creates sessions is abandoned, and the request waits
// for it no longer than for a start.
func TestMuteSession(t *testing.T) {
	systest.SetTemp(t, agenttest.MemoryDir(t))
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, outcomes: make(map[string]int)}
		row, started := crowdRow("alpha"), 0
		connect := row.Warm.Connect
		row.Warm.Connect = func(r io.ReadCloser, w io.WriteCloser, files bool, client agent.Client) agent.Conn {
			started++
			conn := connect(r, w, files, client)
			if started == 1 {
				return muteConn{conn.(*fakeConn)}
			}
			return conn
		}
		r, err := c.runner(row)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		const startTimeout = time.Minute // the default
		for i, want := range []string{agent.Warmed, agent.Spawned, agent.Spawned} {
			began := time.Now()
			got, err := r.Run(t.Context(), agent.Request{Prompt: "x", Source: agent.Source{Env: agent.Env{"KEY=k"}}}, func(agent.Event) {})
			if err != nil || got.Runner != want {
				t.Errorf("request %d: %q, %v", i, got.Runner, err)
			}
			if took := time.Since(began); took > startTimeout+2*time.Second || i != 1 && took > 2*time.Second {
				t.Errorf("request %d took %s", i, took)
			}
		}
		synctest.Wait()
		if all := r.Workers(); len(all) > 0 {
			t.Errorf("workers: %+v", all)
		}
	})
}

// A retry of a session does not count for the requests in others.
func TestRetryOfSession(t *testing.T) {
	w := idleProcess()
	w.agent.Tidy = agent.Line
	one, two := newAttempt(w.agent, agent.Env{}, false), newAttempt(w.agent, agent.Env{}, false)
	w.attempts = map[string]*attempt{"one": one, "two": two}
	w.note(agent.Signs{Retries: []agent.Retry{{Kind: agent.QuotaMinute, Session: "two"}, {Kind: agent.Capacity, Session: "ended"}}}, nil)
	want := agent.Retry{Kind: agent.QuotaMinute, Session: "two"}
	if events := two.takeEvents(); len(events) != 1 || events[0] != want {
		t.Errorf("the request has %+v, want %+v", events, want)
	}
	if events := one.takeEvents(); len(events) > 0 {
		t.Errorf("the other one has %+v", events)
	}
}
