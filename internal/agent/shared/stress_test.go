package shared

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/agent/queue"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

// The stress test starts this test binary again, with one argument, for each of its processes.
const (
	poolRole   = "stress-pool"
	bridgeRole = "stress-bridge"
)

func init() {
	fakecli.Main()
	if len(os.Args) != 2 {
		return
	}
	var err error
	switch os.Args[1] {
	default:
		return
	case poolRole:
		err = stressPool()
	case bridgeRole:
		err = stressBridge(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func stressHello() Hello {
	return Hello{
		Protocol: Protocol, Agent: agents.Default().Name, PID: os.Getpid(),
		Source: &agent.Source{Env: agents.Default().Environment(nil)},
	}
}

func openStress() (agent.Runner, error) {
	return agents.Open(agents.Default(), agent.Options{Kind: agent.Warmed})
}

// stressPool does what `pollux pool --background` does.
func stressPool() error {
	path, err := SocketPath("stress")
	if err != nil {
		return err
	}
	l, err := Listen(context.Background(), path)
	if errors.Is(err, ErrRunning) {
		fmt.Println(ReadyLine)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Println(ReadyLine)
	s := &Server{IdleTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	s.Open = func(string) (*queue.Runner, agent.Source, error) {
		r, err := agents.Open(agents.Default(), agent.Options{Kind: agent.Warmed})
		return r, agent.Source{}, err
	}
	return s.Serve(context.Background(), l)
}

// A stressCall is a line that a bridge in the stress test reads, and a stressAnswer one that
// it writes.
type stressCall struct {
	ID                           int
	Prompt, Dir, Session, Replay string
}

type stressAnswer struct {
	ID   int
	Text string
	Kind agent.Kind
	Err  string
}

// stressBridge answers the calls on its input with a [Client], all at once.
func stressBridge(in io.Reader, out io.Writer) error {
	path, err := SocketPath("stress")
	if err != nil {
		return err
	}
	h := stressHello()
	c := NewClient(Config{
		Connect: Starter(path, []string{os.Args[0], poolRole}), Hello: &h, Local: openStress,
	})
	var calls sync.WaitGroup
	var mu sync.Mutex
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var call stressCall
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			return err
		}
		calls.Go(func() {
			a := stressAsk(c, call)
			mu.Lock()
			defer mu.Unlock()
			json.NewEncoder(out).Encode(a)
		})
	}
	calls.Wait()
	return c.Close()
}

// stressLimit is how many calls run at once.
const stressLimit = 8

// stressAsk asks, and waits until no process works on the request.
func stressAsk(c *Client, call stressCall) stressAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	released := make(chan struct{})
	r, err := c.Run(ctx, agent.Request{
		Prompt: call.Prompt, Dir: call.Dir, Conversation: call.Session, Replay: call.Replay,
		Queue: agent.Queue{Limit: stressLimit}, Released: func() { close(released) },
	}, func(agent.Event) {})
	a := stressAnswer{ID: call.ID, Text: r.Partial()}
	var fault *agent.Error
	switch {
	case errors.As(err, &fault):
		a.Kind, a.Err = fault.Kind, err.Error()
	case err != nil:
		a.Err = err.Error()
	}
	select {
	case <-released:
	case <-ctx.Done():
		a.Err += " (the request was never released)"
	}
	return a
}

// A stressSeat is the place of a bridge. Another one takes it when the bridge is killed.
type stressSeat struct {
	t *testing.T

	mu      sync.Mutex
	taken   sync.Cond // signals that a bridge has taken the place
	cmd     *exec.Cmd
	in      io.WriteCloser
	pending map[int]chan stressAnswer // closed if the bridge is killed; nil without one
	gone    chan struct{}             // closed when the bridge has ended
}

func newStressSeat(t *testing.T) *stressSeat {
	s := &stressSeat{t: t}
	s.taken.L = &s.mu
	s.start()
	return s
}

func (s *stressSeat) start() {
	cmd := exec.Command(os.Args[0], bridgeRole)
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	pending, gone := make(map[int]chan stressAnswer), make(chan struct{})
	s.mu.Lock()
	s.cmd, s.in, s.pending, s.gone = cmd, in, pending, gone
	s.taken.Broadcast()
	s.mu.Unlock()
	go func() {
		defer close(gone)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var a stressAnswer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				continue // a line that was cut off
			}
			s.mu.Lock()
			pending[a.ID] <- a
			delete(pending, a.ID)
			s.mu.Unlock()
		}
		cmd.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range pending {
			close(c)
		}
		s.pending = nil
	}()
}

// ask reports false if the bridge was killed.
func (s *stressSeat) ask(call stressCall) (stressAnswer, bool) {
	line, err := json.Marshal(call)
	if err != nil {
		s.t.Error(err)
	}
	c := make(chan stressAnswer, 1)
	s.mu.Lock()
	for s.pending == nil {
		s.taken.Wait()
	}
	s.pending[call.ID] = c
	s.in.Write(append(line, '\n')) // an error means that it was killed
	s.mu.Unlock()
	a, ok := <-c
	return a, ok
}

// replace kills the bridge and starts another one.
func (s *stressSeat) replace() {
	s.cmd.Process.Kill()
	<-s.gone
	s.start()
}

// leave lets the bridge end without a signal.
func (s *stressSeat) leave() {
	s.in.Close()
	<-s.gone
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("a bridge ended with the code %d", code)
	}
}

var seedFlag = flag.Uint64("seed", 0, "seed of the stress test; random by default")

// 20 bridges ask a pool 1,000 times, or 300 with -short, while bridges, pools and agents are
// killed. Each call is answered, unless its own bridge was killed. At the end, no process,
// slot, socket or file is left.
func TestStress(t *testing.T) {
	const bridges, lanes = 20, 2
	calls, callsPerKill := 1000, 20
	if testing.Short() {
		calls, callsPerKill = 300, 10
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat the same choices: go test ./internal/agent/shared -run %s -seed %d", t.Name(), seed)
	home := stressHome(t)
	var dirs []string
	for range 2 {
		dirs = append(dirs, t.TempDir())
	}

	seats := make([]*stressSeat, bridges)
	for i := range seats {
		seats[i] = newStressSeat(t)
	}
	now := make(chan struct{}, calls)
	var faults, askers sync.WaitGroup
	var kills [3]int
	faults.Go(func() { kills = killAtRandom(t, rand.New(rand.NewPCG(seed, 1)), seats, now) })

	var next atomic.Int32
	var mu sync.Mutex
	outcomes := make(map[string]int)
	for i, seat := range seats {
		for lane := range lanes {
			askers.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(2+lanes*i+lane)))
				for n := int(next.Add(1)); n <= calls; n = int(next.Add(1)) {
					if n%callsPerKill == 0 {
						now <- struct{}{}
					}
					own := fmt.Sprintf("number %d.", n)
					fake := []string{"echo", "echo", "remember", "slow=30", "narrate"}[random.IntN(5)]
					call := stressCall{ID: n, Prompt: "fake:" + fake + " " + own, Dir: dirs[random.IntN(len(dirs))]}
					if random.IntN(4) == 0 {
						call.Session = fmt.Sprintf("%d-%d", i, lane)
						call.Replay = call.Prompt
					}
					outcome := stressOutcome(t, seat, call, fake, own)
					mu.Lock()
					outcomes[outcome]++
					mu.Unlock()
				}
			})
		}
	}
	askers.Wait()
	close(now)
	faults.Wait()
	t.Logf("outcomes: %v; killed: %d bridges, %d pools, %d agents", outcomes, kills[0], kills[1], kills[2])
	if kills[0] == 0 || kills[1] == 0 || kills[2] == 0 {
		t.Error("too few kills: this test proves nothing")
	}
	if outcomes["bridge killed"] > lanes*kills[0] || outcomes[string(agent.Crashed)] > stressLimit*kills[2] {
		t.Error("more calls ended without an answer than the kills explain")
	}
	for _, seat := range seats {
		seat.leave()
	}
	wantIdleAndEnd(t)
	wantNothingLeft(t, home)
}

// stressHome gives the test a home, a temporary directory, a directory for sockets and a
// fake agent.
func stressHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	command, err := fakecli.Install(t.TempDir(), "0.61.0")
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "px") // their paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	systest.SetHome(t, home)
	systest.SetTemp(t, t.TempDir())
	t.Setenv("POLLUX_RUNTIME_DIR", sockets)
	t.Setenv("PATH", filepath.Dir(command)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("GORACE", "atexit_sleep_ms=10 log_path="+filepath.Join(home, "race"))
	return home
}

// stressOutcome asks and checks the answer.
func stressOutcome(t *testing.T, seat *stressSeat, call stressCall, fake, own string) string {
	a, ok := seat.ask(call)
	switch {
	case !ok:
		return "bridge killed"
	case a.Kind == agent.Crashed && !strings.Contains(a.Err, "released"):
		return string(a.Kind)
	case a.Err != "":
		t.Errorf("call %d: %s", call.ID, a.Err)
		return "error"
	case fake == "slow=30" && a.Text == "slowly", fake == "narrate" && a.Text == "The answer.":
	case !strings.Contains(a.Text, own), call.Session == "" && strings.Count(a.Text, "number ") != 1:
		t.Errorf("call %d has the answer %q", call.ID, a.Text)
	}
	return "answer"
}

// killAtRandom kills a bridge, a pool or an agent each time that now says so, until it is
// closed. It returns how many of each it killed.
func killAtRandom(t *testing.T, random *rand.Rand, seats []*stressSeat, now <-chan struct{}) (kills [3]int) {
	path, err := SocketPath("stress")
	if err != nil {
		t.Error(err)
		return kills
	}
	victim := 0
	for range now {
		if victim == 0 {
			seats[random.IntN(len(seats))].replace()
			kills[0]++
			victim = random.IntN(3)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), stateTimeout)
		s, err := AskStatus(ctx, path)
		cancel()
		pid := s.PID
		if victim == 2 && len(s.Workers) > 0 {
			pid = s.Workers[random.IntN(len(s.Workers))].PID
		}
		if err != nil || victim == 2 && pid == s.PID {
			continue // the next time
		}
		if p, err := os.FindProcess(pid); err == nil && p.Kill() == nil {
			kills[victim]++
			victim = random.IntN(3)
		}
	}
	return kills
}

// wantIdleAndEnd checks that no slot of the last pool is taken, and ends it.
func wantIdleAndEnd(t *testing.T) {
	t.Helper()
	path, err := SocketPath("stress")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		s, err := AskStatus(ctx, path)
		if err != nil {
			return // it was the last one to be killed
		}
		busy := len(s.Sessions) + len(s.Queues)
		for _, w := range s.Workers {
			busy += w.Running
		}
		if busy == 0 {
			if err := Stop(ctx, s, false); err != nil {
				t.Error(err)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the pool is not idle:\n%s", s)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wantNothingLeft reports processes and files. The next runner removes the files of killed
// ones.
func wantNothingLeft(t *testing.T, home string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := stressProcesses(home)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("processes are left: %q", left)
			break
		}
	}
	next, err := agent.NewTempDir("bridge")
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
	for _, pattern := range []string{filepath.Join(os.TempDir(), "*"), filepath.Join(home, "race*")} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	// A pool that was killed leaves its socket, which the next one replaces.
	sockets, err := Sockets()
	if err != nil || len(sockets) > 1 {
		t.Errorf("sockets: %v, %v", sockets, err)
	}
	for _, path := range sockets {
		l, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if left, err := os.ReadDir(os.Getenv("POLLUX_RUNTIME_DIR")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// stressProcesses returns the command lines of the processes with a home. Other systems
// than Linux do not show them; on Windows their programs could not be removed.
func stressProcesses(home string) (all []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		data, _ := os.ReadFile(f)
		if pid == os.Getpid() || !strings.Contains("\x00"+string(data), "\x00HOME="+home+"\x00") || !proc.Alive(pid) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return all
}
