package shared

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

func TestStatusForPeople(t *testing.T) {
	systest.SetHome(t, filepath.FromSlash("/home/me"))
	synctest.Test(t, func(t *testing.T) {
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		app := Session{Caller: "1", PID: 11, Dir: filepath.FromSlash("/home/me/app"), Since: ago(time.Hour)}
		busy := Session{Caller: "2", PID: 12, Dir: "/srv/x\x1b[31m", Since: ago(time.Minute), Requests: 3, Conversations: 1}
		remote := Session{Caller: "3", Since: ago(time.Second), Requests: 1, Conversations: 2}
		full := queue.Load{
			Account: "0123456789", Running: 1, Waiting: 3, Limit: 1,
			Callers: []queue.Waiting{{Caller: "3", Requests: 1, Since: ago(2 * time.Second)}, {Caller: "2", Requests: 2, Since: ago(9 * time.Second)}},
		}
		usedUp := queue.Load{Account: "abcdef0123", UsedUp: []queue.UsedUp{
			{Model: "", Kind: agent.QuotaMinute, Until: time.Now().Add(time.Minute)},
			{Model: "pro", Kind: agent.QuotaDay, Until: time.Now().Add(26 * time.Hour)},
		}}
		base := Status{PID: 7, Version: "1.2", Started: ago(90 * time.Second), Memory: 18 << 20}
		for name, tt := range map[string]struct {
			change func(s *Status)
			want   []string
		}{
			"idle": {func(s *Status) { s.Ends = time.Now().Add(time.Minute) }, []string{
				"  process 7, up 1m30s, 18 MB; ends in 1m0s unless a call comes",
			}},
			"overdue": {func(s *Status) { s.Ends = ago(time.Second) }, []string{
				"  process 7, up 1m30s, 18 MB; ends in 0s unless a call comes",
			}},
			"stopping": {func(s *Status) { s.Stopping = true }, []string{
				"  process 7, up 1m30s, 18 MB; ends after its running calls",
			}},
			"sessions, agents and a queue": {
				func(s *Status) {
					s.Sessions = []Session{app, busy, remote}
					s.Workers = []agent.Worker{{PID: 21, Dir: filepath.FromSlash("/home/me/app"), Memory: 250 << 20, Sessions: 4, Started: ago(time.Minute), Used: ago(time.Second)}}
					s.Queues = []queue.Load{full}
				},
				[]string{
					"  process 7, up 1m30s, 18 MB",
					"  agent process 21 in ~/app, idle for 1s, 250 MB, conversations: 4, up 1m0s",
					"  session 1: bridge 11 in ~/app, for 1h0m0s",
					"  session 2: bridge 12 in /srv/x[31m, for 1m0s, 1 running, 2 waiting for 9s, 1 conversation",
					"  session 3: from another machine, for 1s, 1 waiting for 2s, 2 conversations",
					"  queue: 1 of 1 calls running, 3 waiting; next: session 3, session 2",
				},
			},
			"a bridge with two agents": {
				func(s *Status) {
					other := busy
					other.Caller, other.PID, other.Conversations = "4", app.PID, 2
					s.Sessions, s.Queues = []Session{app, remote, other, remote}, []queue.Load{{Running: 1, Waiting: 2, Limit: 1, Callers: []queue.Waiting{{Caller: "4", Requests: 2, Since: ago(time.Second)}}}}
				},
				[]string{
					"  process 7, up 1m30s, 18 MB",
					"  session 1, 4: bridge 11 in ~/app, for 1h0m0s, 1 running, 2 waiting for 1s, 2 conversations",
					"  session 3: from another machine, for 1s, 1 running, 2 conversations",
					"  session 3: from another machine, for 1s, 1 running, 2 conversations",
					"  queue: 1 of 1 calls running, 2 waiting; next: session 4",
				},
			},
			"a wall": {
				func(s *Status) { s.Wall = agent.Wall{Mode: agent.WallAuto, Missing: errors.New("no\x1b[31m")}.String() },
				[]string{"  process 7, up 1m30s, 18 MB", "  the kernel does not keep agents from changing files: no[31m"},
			},
			"two accounts and used-up quotas": {
				func(s *Status) { s.Queues = []queue.Load{full, usedUp} },
				[]string{
					"  process 7, up 1m30s, 18 MB",
					"  queue of account 012345: 1 of 1 calls running, 3 waiting; next: session 3, session 2",
					"  queue of account abcdef: the quota per minute of the default model is used up until " + clock(usedUp.UsedUp[0].Until, time.Now()),
					"  queue of account abcdef: the quota per day of pro is used up until " + usedUp.UsedUp[1].Until.Local().Format("2 January, 15:04"),
				},
			},
		} {
			s := base
			tt.change(&s)
			want := strings.Join(append([]string{"pool of Pollux 1.2"}, tt.want...), "\n") + "\n"
			want = strings.ReplaceAll(want, "~/app", filepath.FromSlash("~/app"))
			if got := s.String(); got != want {
				t.Errorf("%s: got\n%swant\n%s", name, got, want)
			}
		}
	})
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 30, 0, 0, time.Local)
	for until, want := range map[time.Duration]string{
		20 * time.Minute:     "23:50",
		time.Hour:            "1 January, 00:30",
		365 * 24 * time.Hour: "31 December, 23:30",
	} {
		if got := clock(now.Add(until), now); got != want {
			t.Errorf("after %s: %q, want %q", until, got, want)
		}
	}
}

func TestUnreachableError(t *testing.T) {
	for want, e := range map[string]*UnreachableError{
		"the pool at /s: it does not answer: run `pollux doctor bridge`":          {"/s", 0, ErrSilent},
		"the pool with process 7: it does not answer: run `pollux doctor bridge`": {"/s", 7, ErrSilent},
	} {
		if e.Error() != want || !errors.Is(e, ErrSilent) {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}

// A command that reaches no answer says which pool it asked.
func TestCommandAtAnotherProgram(t *testing.T) {
	path := socket(t)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}()
	_, err = AskStatus(t.Context(), path)
	if _, ok := errors.AsType[*UnreachableError](err); !ok || !strings.HasPrefix(err.Error(), "the pool ") {
		t.Errorf("got %v", err)
	}
}

// The status contains nothing of a bridge's environment or requests.
func TestStatusNamesNoSecret(t *testing.T) {
	const secret = "secret-4711"
	path := socket(t)
	p := startPool(t, path, hang(), time.Hour)
	c := newTestClient(t, path, func(cfg *Config) {
		hello := testHello
		hello.Source = &agent.Source{Command: secret, Env: agent.Env{"GEMINI_API_KEY=" + secret}}
		cfg.Hello = &hello
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { c.Run(ctx, agent.Request{Prompt: secret, Replay: secret}, ignore) })
	until(t, "the request", func() bool { l := p.runner.Loads(); return len(l) == 1 && l[0].Running == 1 })
	st, err := AskStatus(t.Context(), path)
	if err != nil || len(st.Sessions) != 1 || st.Sessions[0].Requests != 1 {
		t.Fatalf("got %+v, %v", st, err)
	}
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(data), st.String()} {
		if strings.Contains(text, secret) {
			t.Errorf("the status has the secret: %s", text)
		}
	}
}

// The command that stops a pool finds it, and waits for the end of its process.
func TestStop(t *testing.T) {
	t.Setenv("POLLUX_RUNTIME_DIR", filepath.Dir(socket(t)))
	path, err := SocketPath("build")
	if err != nil {
		t.Fatal(err)
	}
	p := startPool(t, path, say(), time.Hour)
	if all, err := Sockets(); err != nil || !slices.Equal(all, []string{path}) {
		t.Errorf("the sockets are %q, %v", all, err)
	}
	pool, err := AskStatus(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancelCause(t.Context())
	late := errors.New("late")
	var gone sync.WaitGroup
	gone.Go(func() {
		until(t, "the end of the socket", func() bool { return !disk.Exists(path) })
		giveUp(late)
	})
	if err := Stop(ctx, pool, false); !errors.Is(err, late) { // the process of the test does not end
		t.Errorf("got %v", err)
	}
	gone.Wait()
	p.end()
	if err := Stop(t.Context(), pool, false); err == nil {
		t.Error("a process that cannot be reached counts as stopped")
	}
	ended := exec.Command(systest.Self(t), "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	pool.PID = ended.Process.Pid
	if err := Stop(t.Context(), pool, false); err != nil {
		t.Errorf("a pool that has ended: %v", err)
	}
}

// A client reports the pool that it uses, and only its own processes as its own.
func TestPoolOfAClient(t *testing.T) {
	path := socket(t)
	startPool(t, path, say(), time.Hour)
	c := newTestClient(t, path, nil)
	if pid := c.Pool(); pid != 0 {
		t.Errorf("a client that is not connected uses pool %d", pid)
	}
	if _, err := run(t, c, t.Context(), agent.Request{Prompt: "x"}, ignore); err != nil {
		t.Fatal(err)
	}
	if pid, own := c.Pool(), c.Workers(); pid != os.Getpid() || len(own) != 0 {
		t.Errorf("pool %d, own processes %+v", pid, own)
	}
}

// Commands reach the pools of other versions, which bridges cannot use.
func TestCommandsReachOtherVersions(t *testing.T) {
	for _, version := range []int{1, Protocol, Protocol + 1} {
		path := socket(t)
		l, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			link := newLink(conn)
			var h Hello
			if err := link.greeting(&h); err != nil || h.Protocol != 1 || h.Agent != "" {
				t.Errorf("the command says %+v, %v", h, err)
			}
			link.w.Encode(Welcome{Name: welcomeName, Protocol: version, Version: "other"})
			req, err := link.messages().ReadMessage()
			if err != nil || *req.Method != "status" {
				t.Errorf("the command calls %+v, %v", req, err)
			}
			link.w.Encode(map[string]any{"id": req.ID, "result": Status{PID: 7, Version: "other"}})
		}()
		s, err := AskStatus(t.Context(), path)
		if err != nil || s.PID != 7 || s.Version != "other" {
			t.Errorf("version %d: %+v, %v", version, s, err)
		}
		l.Close()
		<-served
	}
}
