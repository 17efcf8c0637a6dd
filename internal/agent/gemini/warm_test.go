package gemini

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/sys"
)

// A seat is a runner of fakes.
type seat struct {
	agent.Runner
	t      *testing.T
	dir    string
	mu     sync.Mutex
	events []string
}

func sit(t *testing.T, kind, version string, change func(*Config, *WarmConfig)) *seat {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	cli, err := fakecli.Install(t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	cfg, warm := Config{Command: cli}, WarmConfig{Wait: patience}
	if change != nil {
		change(&cfg, &warm)
	}
	spawner, err := NewSpawner(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{t: t, dir: t.TempDir(), Runner: spawner}
	if kind == agent.Warmed {
		s.Runner = NewWarm(spawner, warm)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "pollux*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if n := fakeProcesses(t); n > 0 {
			t.Errorf("%d processes are left", n)
		}
	})
	return s
}

// ask asks and waits until nothing works on it.
func (s *seat) ask(ctx context.Context, req agent.Request) (agent.Result, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if req.Dir == "" {
		req.Dir = s.dir
	}
	released := make(chan struct{})
	req.Released = func() { close(released) }
	r, err := s.Run(ctx, req, func(ev agent.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, fmt.Sprintf("%T%+v", ev, ev))
	})
	select {
	case <-released:
	case <-time.After(patience):
		s.t.Error("the request was never released")
	}
	return r, err
}

func (s *seat) want(prompt, answer string) agent.Result {
	s.t.Helper()
	r, err := s.ask(s.t.Context(), agent.Request{Prompt: prompt})
	if err != nil || r.Answer != answer {
		s.t.Errorf("%q is answered by %q, %v; want %q", prompt, r.Answer, err, answer)
	}
	return r
}

func (s *seat) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited for %s in vain; %+v", what, s.Workers())
		}
	}
}

// What both runners promise.
func TestRunners(t *testing.T) {
	for _, kind := range []string{agent.Spawned, agent.Warmed} {
		for name, scenario := range map[string]func(t *testing.T, s *seat){
			"an answer": func(t *testing.T, s *seat) {
				r := s.want("fake:echo hello", "fake:echo hello")
				if r.Model != "gemini-fake" || r.Tokens.Total != 10 || r.Runner != kind {
					t.Errorf("got %+v", r)
				}
			},
			"narration is not the answer": func(t *testing.T, s *seat) {
				r := s.want("fake:narrate", "The answer.")
				if !strings.HasPrefix(r.Narration, "I will read it.") || r.Tools == 0 {
					t.Errorf("got %+v", r)
				}
				if !slices.Contains(s.events, "agent.ToolUse{Name:read_file Summary:hello.txt}") {
					t.Errorf("events %q", s.events)
				}
			},
			"noise":        func(t *testing.T, s *seat) { s.want("fake:noise", "through the noise") },
			"a flood":      func(t *testing.T, s *seat) { s.want("fake:flood=20", "after the flood") },
			"a big answer": func(t *testing.T, s *seat) { s.want("fake:big=1000000", strings.Repeat("0123456789abcdef", 62500)) },
			"a retry": func(t *testing.T, s *seat) {
				s.want("fake:retry=20", "after a retry")
				wantEvent(t, s, "agent.Retry{Attempt:1")
			},
			"a plain slash": func(t *testing.T, s *seat) { s.want("/fake:echo x", "The request:\n\n/fake:echo x") },
			"a byte order mark and a slash": func(t *testing.T, s *seat) {
				s.want("\ufeff/init fake:echo x", "The request:\n\n\ufeff/init fake:echo x")
			},
			"a dollar": func(t *testing.T, s *seat) { s.want("$init fake:echo x", "The request:\n\n$init fake:echo x") },
			"empty": func(t *testing.T, s *seat) {
				_, err := s.ask(t.Context(), agent.Request{Prompt: "fake:empty"})
				wantKind(t, err, agent.Empty)
			},
			"a crash": func(t *testing.T, s *seat) {
				r, err := s.ask(t.Context(), agent.Request{Prompt: "fake:crash"})
				wantKind(t, err, agent.Crashed)
				if r.Partial() != "half of" {
					t.Errorf("got %+v", r)
				}
			},
			"a crash before a word": func(t *testing.T, s *seat) {
				_, err := s.ask(t.Context(), agent.Request{Prompt: "fake:silent"})
				wantKind(t, err, agent.Crashed)
				s.want("fake:echo again", "fake:echo again")
			},
			"a tool that the policy denies": func(t *testing.T, s *seat) {
				_, err := s.ask(t.Context(), agent.Request{Prompt: "fake:stray"})
				wantKind(t, err, agent.Strayed, "run_shell_command")
			},
			"a policy that is not followed": func(t *testing.T, s *seat) {
				_, err := s.ask(t.Context(), agent.Request{Prompt: "fake:no-policy"})
				wantKind(t, err, agent.Unenforceable)
				s.want("fake:echo after it", "fake:echo after it")
			},
			"a search without end": func(t *testing.T, s *seat) {
				_, err := s.ask(t.Context(), agent.Request{Prompt: "fake:search-loop"})
				wantKind(t, err, agent.SearchQuota)
			},
			"a grandchild": func(t *testing.T, s *seat) { s.want("fake:grandchild=1", "I have a child") },
			"a deadline": func(t *testing.T, s *seat) {
				ctx, cancel := context.WithCancelCause(t.Context())
				late := errors.New("late")
				var r agent.Result
				var err error
				asked := make(chan struct{})
				go func() {
					defer close(asked)
					r, err = s.ask(ctx, agent.Request{Prompt: "fake:say-and-hang"})
				}()
				s.until("a word", func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return slices.Contains(s.events, "agent.Text{Text:as far as I came}")
				})
				cancel(late)
				<-asked
				if !errors.Is(err, late) || r.Partial() != "as far as I came" {
					t.Errorf("got %+v, %v", r, err)
				}
				s.want("fake:echo after it", "fake:echo after it")
			},
			"a process that does not stop": func(t *testing.T, s *seat) {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if _, err := s.ask(ctx, agent.Request{Prompt: "fake:stubborn"}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				s.want("fake:echo after it", "fake:echo after it")
			},
			"the environment": func(t *testing.T, s *seat) {
				t.Setenv("GITHUB_TOKEN", "secret-of-ours")
				t.Setenv("GEMINI_CLI_IDE_SERVER_PORT", "1")
				t.Setenv("GOOGLE_API_KEY", "theirs")
				r, err := s.ask(t.Context(), agent.Request{Prompt: "fake:env"})
				if err != nil || strings.Contains(r.Answer, "secret-of-ours") || strings.Contains(r.Answer, "GEMINI_CLI_IDE_") || !strings.Contains(r.Answer, "GOOGLE_API_KEY=theirs") {
					t.Errorf("%v: %s", err, r.Answer)
				}
			},
			"the policy": func(t *testing.T, s *seat) {
				r, err := s.ask(t.Context(), agent.Request{Prompt: "fake:args"})
				for _, arg := range []string{"--approval-mode=default", "--admin-policy=/", "--policy=/", "--extensions=none", "--allowed-mcp-server-names="} {
					if err != nil || !strings.Contains(r.Answer, arg) {
						t.Errorf("no %s in %q, %v", arg, r.Answer, err)
					}
				}
			},
			"many at once": func(t *testing.T, s *seat) {
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						prompt := fmt.Sprintf("fake:echo number %d", i)
						s.want(prompt, prompt)
					})
				}
				wg.Wait()
			},
			"closed": func(t *testing.T, s *seat) {
				s.Close()
				if _, err := s.ask(t.Context(), agent.Request{Prompt: "fake:echo"}); !errors.Is(err, agent.ErrClosed) {
					t.Errorf("got %v", err)
				}
			},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) { scenario(t, sit(t, kind, "0.61.0", nil)) })
		}
	}
}

func wantEvent(t *testing.T, s *seat, start string) {
	t.Helper()
	if !slices.ContainsFunc(s.events, func(ev string) bool { return strings.HasPrefix(ev, start) }) {
		t.Errorf("no %s in %q", start, s.events)
	}
}

func (s *seat) pid() int {
	s.t.Helper()
	all := s.Workers()
	if len(all) != 1 {
		s.t.Fatalf("workers: %+v", all)
	}
	return all[0].PID
}

// One process answers again and again, each question in a session of its own.
func TestWarmProcessIsUsedAgain(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	s.want("fake:remember one", "fake:remember one")
	pid := s.pid()
	s.want("fake:remember two", "fake:remember two")
	if s.pid() != pid {
		t.Error("it is another process")
	}
	r, err := s.ask(t.Context(), agent.Request{Prompt: "fake:echo", Model: "gemini-other"})
	if err != nil || r.Model != "gemini-other" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A conversation goes on in its session; where that is gone it is told anew.
func TestWarmConversation(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	say := func(prompt, replay, want string) {
		t.Helper()
		r, err := s.ask(t.Context(), agent.Request{Prompt: prompt, Session: "mine", Replay: replay})
		if err != nil || r.Answer != want {
			t.Errorf("got %q, %v; want %q", r.Answer, err, want)
		}
	}
	say("fake:remember one", "", "fake:remember one")
	say("fake:remember two", "not needed", "fake:remember one | fake:remember two")
	s.want("fake:remember stranger", "fake:remember stranger")
	if p, err := os.FindProcess(s.pid()); err != nil || p.Kill() != nil {
		t.Fatal("it cannot be killed")
	}
	s.until("its end", func() bool { return len(s.Workers()) == 0 })
	say("fake:remember three", "fake:remember all of it", "fake:remember all of it")
	say("fake:remember four", "not needed", "fake:remember all of it | fake:remember four")
	s.Forget("mine")
	say("fake:remember five", "", "fake:remember five")
	// After a failure the CLI and the caller may not agree on what was said.
	if _, err := s.ask(t.Context(), agent.Request{Prompt: "fake:error=429", Session: "mine"}); err == nil {
		t.Error("no error")
	}
	say("fake:remember six", "fake:remember told anew", "fake:remember told anew")
}

// A process that ends before a word was said is asked again, once.
func TestWarmCrashIsRetried(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	s.want("fake:killed-once", "survived")
}

// A CLI that cannot be kept warm is started for each call.
func TestWarmFallsBack(t *testing.T) {
	for _, version := range []string{fakecli.NoACP, fakecli.MuteACP} {
		t.Run(version, func(t *testing.T) {
			s := sit(t, agent.Warmed, version, func(_ *Config, w *WarmConfig) { w.Handshake = 300 * time.Millisecond })
			for range 2 {
				if r := s.want("fake:echo x", "fake:echo x"); r.Runner != agent.Spawned {
					t.Errorf("the runner is %q", r.Runner)
				}
			}
			if all := s.Workers(); len(all) > 0 {
				t.Errorf("workers: %+v", all)
			}
		})
	}
}

// A process that begins no session any more is given up, and the call does not
// wait for it longer than for a start.
func TestWarmMuteSession(t *testing.T) {
	s := sit(t, agent.Warmed, fakecli.SlowACP, func(_ *Config, w *WarmConfig) { w.Handshake = 5 * time.Second })
	if r := s.want("fake:echo x", "fake:echo x"); r.Runner != agent.Warmed {
		t.Errorf("the runner is %q", r.Runner)
	}
	for range 2 {
		if r := s.want("fake:echo x", "fake:echo x"); r.Runner != agent.Spawned {
			t.Errorf("the runner is %q", r.Runner)
		}
	}
	s.until("its end", func() bool { return len(s.Workers()) == 0 })
}

// What the CLI says of one question is not held against another.
func TestWarmRetryOfAnother(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	s.want("fake:echo x", "fake:echo x")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Run(ctx, agent.Request{Prompt: "fake:retry=30000", Dir: s.dir}, func(agent.Event) {})
	})
	s.until("the other", func() bool { return s.Workers()[0].Running == 1 })
	heard := make(chan agent.Retry, 10)
	wg.Go(func() {
		s.Run(ctx, agent.Request{Prompt: "fake:retry=20000", Dir: s.dir}, func(ev agent.Event) {
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

// A home of its own for change mode: like the user's, and nothing that is
// written to it reaches the user's, but for credentials that are renewed.
func TestPrivateHome(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GEMINI_CLI_HOME", "")
	theirs, ours := filepath.Join(os.Getenv("HOME"), ".gemini"), t.TempDir()
	if err := os.MkdirAll(filepath.Join(theirs, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"settings.json", "GEMINI.md", "oauth_creds.json", ".env", "mcp-oauth-tokens.json"} {
		if err := os.WriteFile(filepath.Join(theirs, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if unlinked, err := privateHome(ours); err != nil || len(unlinked) > 0 {
		t.Fatal(unlinked, err)
	}
	for name, same := range map[string]bool{"settings.json": false, "GEMINI.md": false, "oauth_creds.json": true, ".env": true, "mcp-oauth-tokens.json": true} {
		if info, err := os.Lstat(filepath.Join(ours, ".gemini", name)); err != nil || same != (info.Mode()&os.ModeSymlink != 0) {
			t.Errorf("%s is a copy: %v, %v", name, !same, err)
		}
		if err := os.WriteFile(filepath.Join(ours, ".gemini", name), []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(theirs, name))
		if want := map[bool]string{true: "changed", false: name}[same]; err != nil || string(data) != want {
			t.Errorf("the user's %s is %q, %v", name, data, err)
		}
	}
	for dir, near := range map[string]bool{
		os.Getenv("HOME"): true, theirs: true, filepath.Join(theirs, "tmp"): true, "/": true,
		filepath.Join(os.Getenv("HOME"), "project"): false, ours: false,
	} {
		if nearHome(dir) != near {
			t.Errorf("%s is near the CLI's home: %v", dir, !near)
		}
	}
}

// On Windows most users may make no links, and change mode copied their credentials.
func TestPrivateHomeWithoutLinks(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GEMINI_CLI_HOME", "")
	home := t.TempDir()
	theirs, ours := filepath.Join(os.Getenv("HOME"), ".gemini"), filepath.Join(home, ".gemini")
	for _, dir := range []string{theirs, ours} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []string{".env", "oauth_creds.json"}
	for _, name := range append([]string{"settings.json"}, secrets...) {
		if err := os.WriteFile(filepath.Join(theirs, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range secrets { // in the way of the links
		if err := os.WriteFile(filepath.Join(ours, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unlinked, err := privateHome(home)
	if err != nil || !slices.Equal(unlinked, secrets) {
		t.Errorf("not linked: %v, %v", unlinked, err)
	}
	for name, want := range map[string]string{".env": "", "oauth_creds.json": "", "settings.json": "settings.json"} {
		if data, err := os.ReadFile(filepath.Join(ours, name)); err != nil || string(data) != want {
			t.Errorf("the private home's %s holds %q, %v", name, data, err)
		}
	}
}

// A CLI that has no credentials because they could not be linked says what to do.
func TestWarmWithoutCredentials(t *testing.T) {
	refused := &jsonrpc2.Error{Code: -32000, Message: "Authentication required."}
	w := &worker{change: true}
	wantKind(t, w.failure(t.Context(), refused), agent.Auth, "Authentication required")
	w.unlinked = []string{".env", "oauth_creds.json"}
	wantKind(t, w.failure(t.Context(), refused), agent.Unlinked, "Authentication required", ".env, oauth_creds.json", "Developer Mode", "GEMINI_API_KEY", "GEMINI_RUNNER=spawn")
	wantKind(t, w.failure(t.Context(), &jsonrpc2.Error{Code: 429, Message: "slow down"}), agent.QuotaMinute)
}

// A call does not wait for a process that takes long to start; later ones not at
// all, until it is there.
func TestWarmSlowStart(t *testing.T) {
	s := sit(t, agent.Warmed, fakecli.MuteACP, func(_ *Config, w *WarmConfig) { w.Wait = 200 * time.Millisecond })
	for range 3 {
		if r := s.want("fake:echo x", "fake:echo x"); r.Runner != agent.Spawned {
			t.Errorf("the runner is %q", r.Runner)
		}
	}
}

func TestWarmIdleEnds(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", func(_ *Config, w *WarmConfig) { w.Idle = 50 * time.Millisecond })
	s.want("fake:slow=200", "slowly") // that is not idle
	s.until("its end", func() bool { return len(s.Workers()) == 0 })
	s.want("fake:echo again", "fake:echo again")
}

// After a number of sessions another process takes over, without a call that
// waits for it or fails.
func TestWarmIsReplaced(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", func(_ *Config, w *WarmConfig) { w.Sessions = 5 })
	s.want("fake:echo x", "fake:echo x")
	first := s.pid()
	s.until("another", func() bool {
		if r := s.want("fake:echo x", "fake:echo x"); r.Runner != agent.Warmed {
			t.Errorf("the runner is %q", r.Runner)
		}
		all := s.Workers()
		return len(all) == 1 && all[0].PID != first
	})
}

// A workspace has a process of its own; of too many the one that was used
// longest ago goes, and where all are busy a CLI is started for the call.
func TestWarmWorkspaces(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", func(_ *Config, w *WarmConfig) { w.Workers = 2 })
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	in := func(i int, prompt string) (agent.Result, error) {
		return s.ask(t.Context(), agent.Request{Prompt: prompt, Dir: dirs[i]})
	}
	for i := range dirs {
		if r, err := in(i, "fake:echo x"); err != nil || r.Runner != agent.Warmed {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	s.until("two", func() bool {
		all := s.Workers()
		return len(all) == 2 && !slices.ContainsFunc(all, func(w agent.Worker) bool { return w.Dir == dirs[0] })
	})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := 1; i <= 2; i++ {
		wg.Go(func() { s.ask(ctx, agent.Request{Prompt: "fake:hang", Dir: dirs[i]}) })
	}
	s.until("both busy", func() bool {
		return !slices.ContainsFunc(s.Workers(), func(w agent.Worker) bool { return w.Running == 0 })
	})
	if r, err := in(0, "fake:echo x"); err != nil || r.Runner != agent.Spawned {
		t.Errorf("got %+v, %v", r, err)
	}
	cancel()
	wg.Wait()
}

// What the CLI reads when it starts has changed: another process is started.
func TestWarmFollowsSettings(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	for _, file := range []string{filepath.Join(s.dir, ".env"), filepath.Join(s.dir, ".gemini", "settings.json"), filepath.Join(os.Getenv("HOME"), ".gemini", "settings.json")} {
		s.want("fake:echo x", "fake:echo x")
		s.until("one process", func() bool { return len(s.Workers()) == 1 })
		before := s.pid()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.want("fake:echo x", "fake:echo x")
		s.until("the end of the other", func() bool { return len(s.Workers()) == 1 })
		if s.pid() == before {
			t.Errorf("%s has changed, and the process is the same", file)
		}
	}
}

func TestWarmAhead(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	s.Runner.(*Warm).Warm(s.dir)
	s.until("a process with a session", func() bool {
		all := s.Workers()
		return len(all) == 1 && all[0].Sessions == 1
	})
	pid := s.pid()
	s.want("fake:remember", "fake:remember")
	if s.pid() != pid {
		t.Error("it is another process")
	}
}

// A lock that every call needs was held while the CLI was asked for its version,
// which may take seconds, and while files were looked at.
func TestWarmAsksNothingUnderItsLock(t *testing.T) {
	cli, asked, open := slowVersion(t, "0.61.0")
	open()
	s := sit(t, agent.Warmed, "0.61.0", func(c *Config, w *WarmConfig) { c.Command, w.Sessions = cli, 1 })
	s.want("fake:echo x", "fake:echo x")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, agent.Request{Prompt: "fake:hang", Dir: s.dir}, func(agent.Event) {})
	}()
	s.until("a question", func() bool {
		return slices.ContainsFunc(s.Workers(), func(w agent.Worker) bool { return w.Running == 1 })
	})
	// From now on the CLI is another, which does not say its version yet.
	before := asked()
	if err := os.Remove(cli + ".open"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(cli, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	s.until("a question for the version", func() bool { return asked() > before })
	pid := lastLine(t, cli+".asked")
	s.Workers()
	s.Forget("mine")
	if !sys.Alive(pid) {
		t.Error("the runner did not answer while the CLI was asked for its version")
	}
	open()
}

// lastLine is the number in the last line of a file.
func lastLine(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(data))
	n, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
