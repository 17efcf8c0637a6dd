package pool

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/queue"
	"pollux/internal/agent/shared"
	"pollux/internal/sys/systest"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the property test; random by default")

// Bridges of two accounts ask three agents through a pool, while requests are cancelled, agents,
// pools and bridges are killed, and processes and pools end because they are idle. Each request
// has its answer, unless it was cancelled, or its agent or bridge was killed. No answer or event
// has a word of another conversation, agent or account. At the end, no process is left.
func TestProperty(t *testing.T) {
	first, rounds := *seedFlag, 30
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	if testing.Short() {
		rounds = 6
	}
	t.Logf("to repeat the same choices: go test ./internal/agent/pool -run %s -seed %d", t.Name(), first)
	systest.SetTemp(t, agenttest.MemoryDir(t))
	total := make(map[string]int)
	for seed := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{t: t, outcomes: make(map[string]int)}
			c.run(first + seed)
			for what, n := range c.outcomes {
				total[what] += n
			}
		})
	}
	t.Logf("outcomes: %v", total)
	for _, what := range []string{"answered", "cancelled", "agent killed", "pool killed", "bridge killed", "process idle", "pool idle"} {
		if total[what] == 0 && !testing.Short() {
			t.Errorf("never: %s; this test proves too little", what)
		}
	}
}

// A crowd is everything that asks and answers in one round.
type crowd struct {
	t *testing.T

	mu       sync.Mutex
	pool     *host // the latest one
	hosts    []*host
	children []*fakeChild
	outcomes map[string]int
}

func (c *crowd) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[what]++
}

func (c *crowd) counted(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes[what]
}

// lost returns how many pools have ended.
func (c *crowd) lost() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		if h.Closed() {
			n++
		}
	}
	return n
}

const (
	crowdBridges  = 6
	crowdRequests = 25 // of each bridge
	crowdIdle     = 20 * time.Second
)

var crowdAgents = []string{"alpha", "beta", "gamma"} // a process of beta holds one conversation

func (c *crowd) run(seed uint64) {
	var bridges, killers sync.WaitGroup
	stop := make(chan struct{})
	killers.Go(func() { c.kill(rand.New(rand.NewPCG(seed, 0)), stop) })
	for i := range crowdBridges {
		bridges.Go(func() { c.bridge(rand.New(rand.NewPCG(seed, uint64(i+1))), i) })
	}
	bridges.Wait()
	close(stop)
	killers.Wait()
	time.Sleep(10 * time.Minute) // idle processes and pools end
	for _, h := range c.hosts {
		select {
		case <-h.ended:
		default:
			c.t.Error("a pool is left")
			h.terminate()
			<-h.ended
		}
	}
	for _, child := range c.children {
		select {
		case <-child.done:
		default:
			c.t.Errorf("a process of %s is left", child.agent)
			child.Stop(0)
		}
	}
}

// kill kills an agent or a pool now and then.
func (c *crowd) kill(random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.IntN(4000)) * time.Millisecond):
		}
		c.mu.Lock()
		var running []*fakeChild
		for _, child := range c.children {
			if !child.over() {
				running = append(running, child)
			}
		}
		h := c.pool
		c.mu.Unlock()
		switch {
		case random.IntN(6) == 0 && h != nil && !h.Closed():
			c.count("pool killed")
			h.kill()
		case len(running) > 0:
			c.count("agent killed")
			running[random.IntN(len(running))].Stop(0)
		}
	}
}

// bridge asks one request after the other, in one or two lanes, as one bridge. When it is
// killed, the next one continues.
func (c *crowd) bridge(random *rand.Rand, number int) {
	account := fmt.Sprint("account", number%2)
	var clients map[string]*shared.Client
	open := func() {
		clients = make(map[string]*shared.Client)
		for _, name := range crowdAgents {
			from := agent.Source{Env: agent.Env{"KEY=" + account}}
			clients[name] = shared.NewClient(shared.Config{
				Connect: c.dial, Hello: &shared.Hello{Protocol: shared.Protocol, Agent: name, Source: &from, PID: number + 1},
			})
		}
	}
	end := func() {
		for _, client := range clients {
			client.Close()
		}
	}
	open()
	defer func() { end() }()
	talks := make(map[string][]string) // what was said in a conversation, by the name of its agent
	for n := 0; n < crowdRequests; {
		var lanes sync.WaitGroup
		used := make(map[string]bool)
		for range 1 + random.IntN(3) {
			n++
			q := question{
				word: fmt.Sprintf("word-%d-%d.", number, n), agent: crowdAgents[random.IntN(len(crowdAgents))], account: account,
				cancelAfter: -1, delay: time.Duration(random.IntN(3000)) * time.Millisecond, stubborn: random.IntN(12) == 0,
			}
			if random.IntN(5) == 0 {
				q.cancelAfter = time.Duration(random.IntN(4000)) * time.Millisecond
			}
			if random.IntN(2) == 0 && !used[q.agent] {
				used[q.agent] = true
				q.talk, q.said = fmt.Sprintf("talk-%d-%s", number, q.agent), slices.Clone(talks[q.agent])
			}
			client := clients[q.agent]
			lanes.Go(func() {
				if c.ask(client, q) && q.talk != "" {
					c.mu.Lock()
					talks[q.agent] = append(q.said, q.word)
					c.mu.Unlock()
				}
			})
		}
		if random.IntN(10) == 0 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			c.count("bridge killed")
			end()
			lanes.Wait()
			open()
			continue
		}
		lanes.Wait()
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(40)) * time.Second)
		}
	}
}

// A question is a request with what it may receive. The fake agents read it from the prompt.
type question struct {
	word, agent, account string
	talk                 string
	said                 []string
	cancelAfter          time.Duration // negative if it is not cancelled
	delay                time.Duration // of the answer
	stubborn             bool          // the agent does not follow its cancellation
}

func (q question) prompt(words ...string) string {
	return fmt.Sprintf("%s delay=%s stubborn=%v", strings.Join(words, " "), q.delay, q.stubborn)
}

var crowdWord = regexp.MustCompile(`word-\d+-\d+\.`)

// ask asks, and checks what arrives. It reports whether the request was answered.
func (c *crowd) ask(client *shared.Client, q question) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if q.cancelAfter >= 0 {
		time.AfterFunc(q.cancelAfter, cancel)
	}
	released := make(chan struct{})
	req := agent.Request{
		Prompt: q.prompt(q.word), Conversation: q.talk, Dir: "/w", Queue: agent.Queue{Limit: 4}, Released: func() { close(released) },
	}
	own := append(slices.Clone(q.said), q.word)
	if q.talk != "" {
		req.Replay = q.prompt(own...)
	}
	check := func(what, text string) {
		for _, word := range crowdWord.FindAllString(text, -1) {
			if !slices.Contains(own, word) {
				c.t.Errorf("%s of %s has %s", what, q.word, word)
			}
		}
		if i := strings.Index(text, "from "); i >= 0 && !strings.HasPrefix(text[i:]+" ", "from "+q.agent+" of "+q.account+" ") {
			c.t.Errorf("%s of %s, for %s of %s, is %q", what, q.word, q.agent, q.account, text)
		}
	}
	before, killed := c.lost(), c.counted("agent killed")
	r, err := client.Run(ctx, req, func(ev agent.Event) {
		if text, ok := ev.(agent.Text); ok {
			check("an event", text.Text)
		}
	})
	check("the answer", r.Answer+r.Narration)
	var fault *agent.Error
	outcome := "answered"
	switch {
	case err == nil:
		if got := crowdWord.FindAllString(r.Answer, -1); !slices.Equal(got, own) {
			c.t.Errorf("the answer to %q is %q", own, r.Answer)
		}
	case errors.Is(err, context.Canceled) && q.cancelAfter >= 0:
		outcome = "cancelled"
	case errors.Is(err, agent.ErrClosed):
		outcome = "lost with its bridge"
	case errors.As(err, &fault) && fault.Kind == agent.Crashed && c.counted("agent killed") > killed:
		outcome = "lost with its agent"
	case strings.Contains(err.Error(), "ended 3 times") && c.lost() >= before+3:
		outcome = "lost with three pools"
	default:
		c.t.Errorf("%s: %v", q.word, err)
	}
	c.count(outcome)
	<-released
	return err == nil
}

// A host is a pool, with a listener in memory.
type host struct {
	*systest.Network
	ended     chan struct{} // closed when Serve has returned
	terminate func()
}

// kill ends the connections first, as a SIGKILL does. Its agents end with their pipes.
func (h *host) kill() {
	h.Disconnect()
	h.terminate()
}

// dial connects to the pool, and starts one if none listens.
func (c *crowd) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	c.mu.Lock()
	if c.pool == nil || c.pool.Closed() {
		c.startPool()
	}
	h := c.pool
	c.mu.Unlock()
	return h.Dial(ctx, "", "")
}

func (c *crowd) startPool() {
	h := &host{Network: systest.NewNetwork(), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	h.terminate = cancel
	server := &shared.Server{Open: c.open, IdleTimeout: crowdIdle, Log: slog.New(slog.DiscardHandler)}
	c.pool, c.hosts = h, append(c.hosts, h)
	go func() {
		defer close(h.ended)
		if err := server.Serve(ctx, h); err != nil {
			c.t.Error(err)
		}
		if ctx.Err() == nil {
			c.count("pool idle")
		}
		cancel()
	}()
}

// open opens the runner of a fake agent.
func (c *crowd) open(name string, _ *agent.Definition) (*queue.Runner, agent.Source, error) {
	r, err := c.runner(crowdRow(name))
	return r, agent.Source{}, err
}

// runner returns a runner of a fake agent with a row.
func (c *crowd) runner(row *agent.Agent) (*queue.Runner, error) {
	p, err := New(row, agent.Options{Warm: agent.Limits{IdleTimeout: crowdIdle / 2, Sessions: 12}})
	if err != nil {
		return nil, err
	}
	p.spawn = func(cmd *exec.Cmd) (spawned, error) {
		child := &fakeChild{crowd: c, agent: row.Name, account: agent.Env(cmd.Env).Get("KEY"), done: make(chan struct{})}
		c.mu.Lock()
		c.children = append(c.children, child)
		c.mu.Unlock()
		return spawned{child: child, stdout: child, stderr: io.NopCloser(strings.NewReader(""))}, nil
	}
	return queue.New(&row.Explainer, p), nil
}

func crowdRow(name string) *agent.Agent {
	return &agent.Agent{
		Name: name, DisplayName: name,
		Finder: agent.Finder{
			Command:     name,
			Environment: func(env agent.Env) []string { return []string{"KEY=" + env.Get("KEY")} },
			Locate: func(agent.Source) (agent.Program, error) {
				return agent.Program{Path: "/" + name, Argv: []string{"/" + name}, Version: "1"}, nil
			},
			ReadOnly: func(agent.Source, agent.Program) error { return nil },
		},
		Driver: agent.Driver{MaxPrompt: 1 << 20, Warm: &agent.Process{
			Single:  name == "beta",
			Command: func(l agent.Launch) (agent.Command, error) { return agent.Command{Env: l.Env}, nil },
			Connect: func(r io.ReadCloser, _ io.WriteCloser, _ bool, client agent.Client) agent.Conn {
				return &fakeConn{fakeChild: r.(*fakeChild), client: client, said: make(map[string][]string)}
			},
			Inputs: func(agent.Source, agent.Program, string) []string { return nil },
			Usage:  func(json.RawMessage) (string, agent.Tokens) { return "", agent.Tokens{} },
			Failure: func(_ agent.Env, _ int, message string, _ []string) *agent.Error {
				return &agent.Error{Kind: agent.Failed, Message: message}
			},
		}},
		Explainer: agent.Explainer{
			Account: func(env agent.Env, _ string) string { return env.Get("KEY") },
			Tidy:    func(_ agent.Env, message string) string { return message },
			KindOf:  func(string) agent.Kind { return "" },
			Cause:   func(agent.Env, string) string { return "" },
		},
	}
}

// A fakeChild is a process of a fake agent. It is also its own standard output.
type fakeChild struct {
	crowd          *crowd
	agent, account string
	once           sync.Once
	done           chan struct{}
}

func (*fakeChild) PID() int                   { return -1 }
func (*fakeChild) ExitCode() int              { return 0 }
func (f *fakeChild) Done() <-chan struct{}    { return f.done }
func (f *fakeChild) Read([]byte) (int, error) { return 0, io.EOF }
func (f *fakeChild) Close() error             { return nil }

func (f *fakeChild) Stop(grace time.Duration) {
	f.once.Do(func() {
		if grace > 0 {
			f.crowd.count("process idle") // or with its pool
		}
		close(f.done)
	})
}

func (f *fakeChild) over() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// A fakeConn is a fake agent. An answer names the agent and its account, and has all words
// that were said in the session.
type fakeConn struct {
	*fakeChild
	client agent.Client

	updating sync.Mutex // held while the client is called
	mu       sync.Mutex // guards the fields below
	sessions int
	latest   string
	said     map[string][]string
}

var errEnded = errors.New("the agent has ended")

// work waits, unless the agent is killed.
func (f *fakeConn) work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.done:
		return errEnded
	}
}

// Initialize implements [agent.Conn].
func (f *fakeConn) Initialize(ctx context.Context) error { return f.work(ctx, 300*time.Millisecond) }

// NewSession implements [agent.Conn].
func (f *fakeConn) NewSession(ctx context.Context, _ string) (agent.Session, error) {
	if err := f.work(ctx, 20*time.Millisecond); err != nil {
		return agent.Session{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions++
	f.latest = fmt.Sprint("session ", f.sessions)
	return agent.Session{ID: f.latest}, nil
}

// SetModel implements [agent.Conn].
func (*fakeConn) SetModel(context.Context, string, string) error { return nil }

// Prompt implements [agent.Conn].
func (f *fakeConn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	text := content[0].Text
	f.mu.Lock()
	if f.agent == "beta" && session != f.latest {
		f.crowd.t.Errorf("a prompt for %s, after %s", session, f.latest)
	}
	f.said[session] = append(f.said[session], crowdWord.FindAllString(text, -1)...)
	words := slices.Clone(f.said[session])
	f.mu.Unlock()
	var delay time.Duration
	var stubborn bool
	for field := range strings.FieldsSeq(text) {
		if value, ok := strings.CutPrefix(field, "delay="); ok {
			delay, _ = time.ParseDuration(value)
		}
		stubborn = stubborn || field == "stubborn=true"
	}
	if stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	pieces := append([]string{"from " + f.agent + " of " + f.account + " "}, words...)
	for _, piece := range pieces {
		if err := f.work(ctx, delay/time.Duration(len(pieces))); err != nil {
			if errors.Is(err, context.Canceled) {
				return agent.PromptResult{StopReason: agent.StoppedCancelled}, nil
			}
			return agent.PromptResult{}, err
		}
		f.updating.Lock()
		f.client.Update(agent.Update{Session: session, Kind: agent.MessageChunk, Text: piece + " "})
		f.updating.Unlock()
	}
	return agent.PromptResult{}, nil
}

// Close implements [agent.Conn].
func (f *fakeConn) Close() error { return nil }
