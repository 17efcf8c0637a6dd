package pool_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/claude"
	claudefake "pollux/internal/agent/claude/fakecli"
	"pollux/internal/agent/gemini"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/agent/queue"
	"pollux/internal/agent/shared"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	agenttest.Main()
	fakecli.Main()
	claudefake.Main()
	systest.VerifyTestMain(m)
}

// A double is a fake agent.
type double struct {
	row     *agent.Agent
	install func(dir, version string) (command string, err error)
	version string // a version with all features
	model   string // the default model
	// The fake uses these tools: one to read a file, and one that is denied.
	readTool, shellTool string
}

var (
	geminiDouble = double{gemini.Agent(), fakecli.Install, "0.61.0", "gemini-fake", "read_file", "run_shell_command"}
	// Its processes hold one conversation each.
	claudeDouble = double{claude.Agent(), claudefake.Install, "2.1.330", claudefake.Model, "Read", "Bash"}
)

// sit returns a bench with a runner of fake CLIs.
func sit(t *testing.T, kind, version string, change func(*agent.Options)) *agenttest.Bench {
	t.Helper()
	return geminiDouble.sit(t, kind, version, change)
}

// sit returns a bench with a runner of the fake.
func (d double) sit(t *testing.T, kind, version string, change func(*agent.Options)) *agenttest.Bench {
	t.Helper()
	if d.row == claudeDouble.row && runtime.GOOS == "windows" {
		t.Skip("the fake is a shell script")
	}
	agenttest.Isolate(t, "pollux*")
	cli, dir := agenttest.Install(t, d.install, t.TempDir(), version), t.TempDir()
	opts := agent.Options{Warm: agent.Limits{WaitTimeout: agenttest.Timeout}}
	if change != nil {
		change(&opts)
	}
	r, err := agents.Open(d.row, opts)
	if err != nil {
		t.Fatal(err)
	}
	from := agent.Source{Command: cli}
	if kind == overSocket {
		return agenttest.NewBench(t, dir, from, share(t, d.row, from, r))
	}
	b := agenttest.NewBench(t, dir, from, r)
	b.Spawn = kind == agent.Spawned
	return b
}

// share returns a runner that reaches another one over a socket, with from as the first
// source.
func share(t *testing.T, row *agent.Agent, from agent.Source, r *queue.Runner) agent.Runner {
	t.Helper()
	dir := systest.ShortDir(t)
	path := filepath.Join(dir, "s")
	l, err := shared.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := &shared.Server{
		Open:        func(string, *agent.Definition) (*queue.Runner, agent.Source, error) { return r, agent.Source{}, nil },
		IdleTimeout: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		end()
		if err := errors.Join(<-ended, r.Close()); err != nil {
			t.Error(err)
		}
	})
	c := &clients{pool: r, clients: make(map[string]agent.Runner), open: func(from agent.Source) agent.Runner {
		return shared.NewClient(shared.Config{
			Hello:   &shared.Hello{Protocol: shared.Protocol, Agent: row.Name, Source: &from},
			Connect: func(ctx context.Context) (io.ReadWriteCloser, error) { return sock.Dial(ctx, path) },
		})
	}}
	c.of(from)
	return c
}

// A clients is a runner that asks a pool as the bridges of several sources: a connection
// has one source.
type clients struct {
	pool *queue.Runner
	open func(agent.Source) agent.Runner

	mu      sync.Mutex
	clients map[string]agent.Runner
}

func (c *clients) of(from agent.Source) agent.Runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%q", from)
	if c.clients[key] == nil {
		c.clients[key] = c.open(from)
	}
	return c.clients[key]
}

func (c *clients) all() []agent.Runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.clients))
}

func (c *clients) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	return c.of(req.Source).Run(ctx, req, emit)
}

func (c *clients) Check(ctx context.Context, from agent.Source) (agent.Program, error) {
	return c.of(from).Check(ctx, from)
}

func (c *clients) Ahead(from agent.Source, dir string) { c.of(from).Ahead(from, dir) }

func (c *clients) Forget(session string) {
	for _, r := range c.all() {
		r.Forget(session)
	}
}

// Workers returns the processes of the pool.
func (c *clients) Workers() []agent.Worker { return c.pool.Workers() }

func (c *clients) Close() error {
	var all []error
	for _, r := range c.all() {
		all = append(all, r.Close())
	}
	return errors.Join(all...)
}

// talk returns a function that asks in a conversation, and checks the answer.
func talk(t *testing.T, s *agenttest.Bench) (say func(prompt, replay, want string)) {
	return func(prompt, replay, want string) {
		t.Helper()
		r, err := s.Ask(t.Context(), agent.Request{Prompt: prompt, Conversation: "mine", Replay: replay})
		if err != nil || r.Answer != want {
			t.Errorf("got %q, %v; want %q", r.Answer, err, want)
		}
	}
}

// A conversation continues in its session. If the session is gone, it is replayed.
func TestWarmConversation(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	say := talk(t, s)
	say("fake:remember one", "", "fake:remember one")
	say("fake:remember two", "not needed", "fake:remember one | fake:remember two")
	s.Want("fake:remember stranger", "fake:remember stranger")
	if p, err := os.FindProcess(s.PID()); err != nil || p.Kill() != nil {
		t.Fatal("it cannot be killed")
	}
	s.Until("its end", func() bool { return len(s.Workers()) == 0 })
	say("fake:remember three", "fake:remember all of it", "fake:remember all of it")
	say("fake:remember four", "not needed", "fake:remember all of it | fake:remember four")
	s.Forget("mine")
	say("fake:remember five", "", "fake:remember five")
	// After a failure the CLI and the caller may disagree about the history.
	if _, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:error=429", Conversation: "mine"}); err == nil {
		t.Error("no error")
	}
	say("fake:remember six", "fake:remember replayed", "fake:remember replayed")
}

// A question of a conversation names a model, as after a fallback. The next one, which
// names none, gets the default model again.
func TestWarmConversationsModel(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	for _, model := range []string{"gemini-other", "", "gemini-other", ""} {
		r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:remember x", Conversation: "mine", Replay: "again", Model: model})
		if want := cmp.Or(model, "gemini-fake"); err != nil || r.Model != want {
			t.Errorf("%q answers, want %q; %v", r.Model, want, err)
		}
	}
}

// If a process ends before any output, another one is asked, once. Its last words may have the prompt:
// they are not in the log.
func TestWarmCrashIsRetried(t *testing.T) {
	var log bytes.Buffer
	s := sit(t, agent.Warmed, "0.61.0", func(o *agent.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	s.Want("fake:killed-once my secret", "survived")
	if !strings.Contains(log.String(), "trying again") || strings.Contains(log.String(), "secret") {
		t.Errorf("the log is %s", &log)
	}
}

// A CLI that cannot be kept warm is started for each request.
func TestWarmFallsBack(t *testing.T) {
	for _, version := range []string{fakecli.NoACP, fakecli.MuteACP} {
		t.Run(version, func(t *testing.T) {
			s := sit(t, agent.Warmed, version, func(o *agent.Options) { o.Warm.StartTimeout = 300 * time.Millisecond })
			for range 2 {
				if r := s.Want("fake:echo x", "fake:echo x"); r.Runner != agent.Spawned {
					t.Errorf("the runner is %q", r.Runner)
				}
			}
			if all := s.Workers(); len(all) > 0 {
				t.Errorf("workers: %+v", all)
			}
		})
	}
}

// The result of a refused request names the process that was reached, and no process otherwise.
func TestRefusingProcess(t *testing.T) {
	s := sit(t, agent.Warmed, fakecli.StrangeACP, nil)
	r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo"})
	agenttest.WantKind(t, err, agent.Auth)
	if r.Runner != agent.Warmed {
		t.Errorf("the runner is %q", r.Runner)
	}
	none := agent.Source{Command: filepath.Join(t.TempDir(), "none")}
	for _, spawn := range []bool{false, true} {
		r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo", Source: none, Spawn: spawn})
		agenttest.WantKind(t, err, agent.NotInstalled)
		if r.Runner != "" {
			t.Errorf("the runner is %q", r.Runner)
		}
	}
}

// A retry of one request does not count for another.
func TestWarmRetryOfAnother(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	s.Want("fake:echo x", "fake:echo x")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Run(ctx, agent.Request{Prompt: "fake:retry=7000", Dir: s.Dir}, func(agent.Event) {})
	})
	s.Until("the other", func() bool { return s.Workers()[0].Running == 1 })
	heard := make(chan agent.Retry, 10)
	wg.Go(func() {
		s.Run(ctx, agent.Request{Prompt: "fake:retry=7000", Dir: s.Dir}, func(ev agent.Event) {
			if r, ok := ev.(agent.Retry); ok {
				heard <- r
			}
		})
	})
	if r := <-heard; !r.Unsure {
		t.Errorf("of two that are silent, one is sure to be meant: %+v", r)
	}
	cancel()
	wg.Wait()
}

func TestWarmIdleEnds(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", func(o *agent.Options) { o.Warm.IdleTimeout = 50 * time.Millisecond })
	s.Want("fake:slow=200", "slowly") // not counted as idle
	s.Until("its end", func() bool { return len(s.Workers()) == 0 })
	s.Want("fake:echo again", "fake:echo again")
}

// After a number of sessions another process takes over. No request waits for it
// or fails.
func TestWarmIsReplaced(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", func(o *agent.Options) { o.Warm.Sessions = 5 })
	s.Want("fake:echo x", "fake:echo x")
	first := s.PID()
	s.Until("another", func() bool {
		if r := s.Want("fake:echo x", "fake:echo x"); r.Runner != agent.Warmed {
			t.Errorf("the runner is %q", r.Runner)
		}
		all := s.Workers()
		return len(all) == 1 && all[0].PID != first
	})
}

// Each workspace has its own process. If there are too many, the least recently
// used one ends. If all are busy, the agent is started for the request.
func TestWarmWorkspaces(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", func(o *agent.Options) { o.Warm.Processes = 2 })
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	in := func(i int, prompt string) (agent.Result, error) {
		return s.Ask(t.Context(), agent.Request{Prompt: prompt, Dir: dirs[i]})
	}
	for i := range dirs {
		if r, err := in(i, "fake:echo x"); err != nil || r.Runner != agent.Warmed {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	s.Until("two", func() bool {
		all := s.Workers()
		return len(all) == 2 && !slices.ContainsFunc(all, func(w agent.Worker) bool { return w.Dir == dirs[0] })
	})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := 1; i <= 2; i++ {
		wg.Go(func() { s.Ask(ctx, agent.Request{Prompt: "fake:hang", Dir: dirs[i]}) })
	}
	s.Until("both busy", func() bool {
		return !slices.ContainsFunc(s.Workers(), func(w agent.Worker) bool { return w.Running == 0 })
	})
	if r, err := in(0, "fake:echo x"); err != nil || r.Runner != agent.Spawned {
		t.Errorf("got %+v, %v", r, err)
	}
	cancel()
	wg.Wait()
}

// If a file that the CLI reads at its start changes, a new process is started.
func TestWarmFollowsSettings(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	for _, file := range []string{filepath.Join(s.Dir, ".env"), filepath.Join(s.Dir, ".gemini", "settings.json"), filepath.Join(os.Getenv("HOME"), ".gemini", "settings.json")} {
		s.Want("fake:echo x", "fake:echo x")
		s.Until("one process", func() bool { return len(s.Workers()) == 1 })
		before := s.PID()
		systest.WriteFile(t, file, "{}")
		s.Want("fake:echo x", "fake:echo x")
		s.Until("the end of the other", func() bool { return len(s.Workers()) == 1 })
		if s.PID() == before {
			t.Errorf("%s has changed, and the process is the same", file)
		}
	}
}

func TestWarmAhead(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	s.Ahead(s.Source, s.Dir)
	s.Until("a process with a session", func() bool {
		all := s.Workers()
		return len(all) == 1 && all[0].Sessions == 1
	})
	pid := s.PID()
	s.Want("fake:remember", "fake:remember")
	if s.PID() != pid {
		t.Error("it is another process")
	}
}

// The session for the next request is prepared while the model answers.
func TestWarmPreparesDuringAnAnswer(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx, agent.Request{Prompt: "fake:hang", Dir: s.Dir}, func(agent.Event) {}) })
	s.Until("a prepared session", func() bool {
		all := s.Workers()
		return len(all) == 1 && all[0].Running == 1 && all[0].Sessions == 2
	})
	cancel()
	wg.Wait()
}

// withCommand returns a fake Gemini CLI whose processes start with other
// commands, and whose error responses are passed to failure.
func withCommand(change func(*agent.Command), failure func(unlinked []string)) double {
	row := *gemini.Agent()
	acp := *row.Warm
	row.Warm = &acp
	acp.Command = func(l agent.Launch) (agent.Command, error) {
		c, err := gemini.Agent().Warm.Command(l)
		change(&c)
		return c, err
	}
	acp.Failure = func(env agent.Env, code int, message string, unlinked []string) *agent.Error {
		failure(unlinked)
		return gemini.Agent().Warm.Failure(env, code, message, unlinked)
	}
	d := geminiDouble
	d.row = &row
	return d
}

// The agent's package classifies an error response. It needs to know which
// credentials the process cannot read.
func TestWarmUnlinked(t *testing.T) {
	want := []string{".env", "oauth_creds.json"}
	var got [][]string
	d := withCommand(
		func(c *agent.Command) { c.Unlinked = want },
		func(unlinked []string) { got = append(got, unlinked) })
	s := d.sit(t, agent.Warmed, "0.61.0", nil)
	s.Want("fake:echo x", "fake:echo x")
	_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:error=401"})
	agenttest.WantKind(t, err, agent.Unlinked, ".env, oauth_creds.json")
	_, err = s.Ask(t.Context(), agent.Request{Prompt: "fake:error=429"})
	agenttest.WantKind(t, err, agent.QuotaMinute)
	if len(got) != 2 || !slices.Equal(got[0], want) || !slices.Equal(got[1], want) {
		t.Errorf("got %q", got)
	}
}

// An agent's package refuses a workspace. Each request learns why, not only the first one.
func TestWarmRefusesAWorkspace(t *testing.T) {
	for _, kind := range []string{agent.Warmed, agent.Spawned} {
		d := geminiDouble
		row, warm := *d.row, *d.row.Warm
		warm.Command = func(agent.Launch) (agent.Command, error) {
			return agent.Command{}, row.Error(agent.Unenforceable, "hooks.json")
		}
		row.OneShot, row.Warm = nil, &warm
		d.row = &row
		s := d.sit(t, kind, "0.61.0", nil)
		for range 3 {
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo x"})
			agenttest.WantKind(t, err, agent.Unenforceable, "hooks.json")
		}
	}
}

// If a command names no environment, no warm process starts.
func TestWarmEnvironmentIsRequired(t *testing.T) {
	d := withCommand(func(c *agent.Command) { c.Env = nil }, func([]string) {})
	s := d.sit(t, agent.Warmed, "0.61.0", nil)
	if r := s.Want("fake:echo x", "fake:echo x"); r.Runner != agent.Spawned || len(s.Workers()) > 0 {
		t.Errorf("the runner is %q, with workers %+v", r.Runner, s.Workers())
	}
}

// A lock that every request needs was held during calls of stat, and while the
// CLI was asked for its version, which may take seconds.
func TestWarmAsksNothingUnderItsLock(t *testing.T) {
	fake := agenttest.Install(t, fakecli.Install, t.TempDir(), "0.61.0")
	cli, asked, open := agenttest.SlowVersion(t, fake, "0.61.0")
	open()
	s := sit(t, agent.Warmed, "0.61.0", func(o *agent.Options) { o.Warm.Sessions = 1 })
	s.Source.Command = cli
	s.Want("fake:echo x", "fake:echo x")
	// The next request must not reach the process that is being replaced.
	s.Until("another process without a session", func() bool {
		all := s.Workers()
		return len(all) == 1 && all[0].Sessions == 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, agent.Request{Prompt: "fake:hang", Dir: s.Dir}, func(agent.Event) {})
	}()
	s.Until("a question", func() bool {
		return slices.ContainsFunc(s.Workers(), func(w agent.Worker) bool { return w.Running == 1 })
	})
	// From now on the CLI is a new one, which does not print its version yet.
	before := asked()
	systest.Remove(t, cli+".open")
	systest.SetTime(t, cli, time.Now().Add(time.Hour))
	cancel()
	<-ended
	s.Until("a question for the version", func() bool { return asked() > before })
	pid := lastLine(t, cli+".asked")
	s.Workers()
	s.Forget("mine")
	if !proc.Alive(pid) {
		t.Error("the runner did not answer while the CLI was asked for its version")
	}
	open()
}

// A process starts while its program is asked for its version. The request uses it.
func TestWarmStartsDuringTheVersionCheck(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		t.Run(fmt.Sprintf("ahead=%v", ahead), func(t *testing.T) {
			fake := agenttest.Install(t, fakecli.Install, t.TempDir(), "0.61.0")
			s := sit(t, agent.Warmed, "0.61.0", nil)
			program, pids := agenttest.Recorded(t, fake)
			cli, asked, open := agenttest.SlowVersion(t, program, "0.61.0")
			s.Source.Command = cli
			if ahead {
				s.Ahead(s.Source, s.Dir)
				s.Until("a process", func() bool { return len(s.Workers()) == 1 })
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if r := s.Want("fake:echo x", "fake:echo x"); r.Runner != agent.Warmed {
					t.Errorf("the runner is %q", r.Runner)
				}
			}()
			s.Until("a process", func() bool { return len(s.Workers()) == 1 })
			s.Until("a question for the version", func() bool { return asked() > 0 })
			if all := s.Workers(); len(all) != 1 || all[0].Sessions > 0 || all[0].Running > 0 {
				t.Errorf("before the version is known, the processes are %+v", all)
			}
			open()
			<-answered
			// On Windows, the program is a child of its wrapper.
			if all := pids(); len(all) != 1 || all[0] != s.PID() && runtime.GOOS != "windows" || asked() != 1 {
				t.Errorf("started: %v; asked %d times", all, asked())
			}
		})
	}
}

// A program whose version is refused leaves no process, also if the process is still
// starting. Later requests start none.
func TestWarmRefusedVersion(t *testing.T) {
	for name, version := range map[string]string{"started": "0.61.0", "starting": fakecli.MuteACP} {
		t.Run(name, func(t *testing.T) {
			fake := agenttest.Install(t, fakecli.Install, t.TempDir(), version)
			s := sit(t, agent.Warmed, "0.61.0", nil)
			program, pids := agenttest.Recorded(t, fake)
			cli, asked, open := agenttest.SlowVersion(t, program, "0.34.9")
			s.Source.Command = cli
			answered := make(chan error, 1)
			go func() {
				_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo x"})
				answered <- err
			}()
			s.Until("a process", func() bool { return len(pids()) == 1 && asked() == 1 })
			if version != fakecli.MuteACP {
				s.Until("its handshake", func() bool { return len(s.Workers()) == 1 })
			}
			open()
			agenttest.WantKind(t, <-answered, agent.TooOld, "0.34.9")
			pid := pids()[0]
			s.Until("its end", func() bool { return !proc.Alive(pid) && len(s.Workers()) == 0 })
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo x"})
			agenttest.WantKind(t, err, agent.TooOld, "0.34.9")
			if all := pids(); len(all) != 1 {
				t.Errorf("started: %v", all)
			}
		})
	}
}

// lastLine returns the number in the last line of a file.
func lastLine(t *testing.T, path string) int {
	t.Helper()
	data := systest.ReadFile(t, path)
	lines := strings.Fields(data)
	n, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
