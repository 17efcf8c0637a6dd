package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
)

// soakEnv is the variable with the duration of TestPoolSoak. make nightly sets it.
const soakEnv = "POLLUX_SOAK"

// A soakSeat is the place of a bridge. Another one takes it when the bridge is killed.
type soakSeat struct {
	number int

	mu   sync.Mutex
	c    *bridgeClient
	lost int // bridges that were killed
}

func (s *soakSeat) client() (c *bridgeClient, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c, s.lost
}

// A soak is the state of TestPoolSoak.
type soak struct {
	t     *testing.T
	calls atomic.Int64
	dead  atomic.Int64 // agents that were killed

	mu       sync.Mutex
	outcomes map[string]int
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes[what]++
}

func (s *soak) has(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[what] > 0
}

const soakSeats, soakLanes = 4, 2

// Bridges ask a pool, with the fake CLI, while calls are cancelled, and bridges, pools and agents
// are killed. Each call has its own answer, unless it was cancelled, or its bridge or agent was
// killed. At the end, no process, socket or file is left. It takes some seconds, or as long as
// POLLUX_SOAK says, and on a busy machine until a pool was killed.
func TestPoolSoak(t *testing.T) {
	w := newWorld(t, says)
	w.usePool()
	duration, err := time.ParseDuration(os.Getenv(soakEnv))
	if err != nil {
		duration = 5 * time.Second
	}
	cli := agenttest.Install(t, fakecli.Install, filepath.Join(w.home, "fake"), current)
	env := append(slices.Clone(w.env), "GEMINI_CLI_PATH="+cli, "POLLUX_AGENT=gemini",
		fmt.Sprint("GEMINI_MAX_CONCURRENT=", soakSeats*soakLanes), "GEMINI_MIN_INVOCATION_GAP_MS=0", "GEMINI_WARM_IDLE_MS=3000")
	bridge := func() *bridgeClient {
		cmd := exec.Command(polluxBinary, "bridge")
		cmd.Env, cmd.Dir = env, w.project
		return w.connect(cmd)
	}
	s := &soak{t: t, outcomes: make(map[string]int)}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	began := time.Now()
	var seats []*soakSeat
	var lanes sync.WaitGroup
	for n := range soakSeats {
		seat := &soakSeat{number: n, c: bridge()}
		seats = append(seats, seat)
		for lane := range soakLanes {
			lanes.Go(func() { s.ask(ctx, seat, lane) })
		}
	}
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for turn := 0; time.Since(began) < duration || !s.has("pools killed") && time.Since(began) < duration+stepTimeout; turn++ {
		time.Sleep(time.Duration(500+random.IntN(1500)) * time.Millisecond)
		switch pools := w.pools(); {
		case turn%3 == 0:
			seat := seats[random.IntN(len(seats))]
			next := bridge()
			seat.mu.Lock()
			before := seat.c
			seat.c, seat.lost = next, seat.lost+1
			seat.mu.Unlock()
			kill(before.cmd.Process.Pid)
			before.leave()
			s.count("bridges killed")
		case len(pools) != 1:
		case turn%3 == 1:
			kill(pools[0].PID)
			s.count("pools killed")
		case len(pools[0].Workers) > 0:
			s.dead.Add(1)
			kill(pools[0].Workers[random.IntN(len(pools[0].Workers))].PID)
			s.count("agents killed")
		}
	}
	end()
	lanes.Wait()
	t.Logf("%d calls in %s: %v", s.calls.Load(), time.Since(began).Round(time.Second), s.outcomes)
	for _, what := range []string{"answered", "bridges killed", "pools killed"} {
		if !s.has(what) {
			t.Errorf("never: %s; this test proves too little", what)
		}
	}
	if lost := s.outcomes["lost with its agent"]; int64(lost) > s.dead.Load()*soakSeats*soakLanes {
		t.Errorf("%d calls were lost with %d agents", lost, s.dead.Load())
	}
	// The last pool removes what killed ones have left.
	for _, seat := range seats {
		seat.c.call("query", map[string]any{"prompt": "fake:echo the end"}).want(t, false, "the end")
		seat.c.leave()
	}
	waitFor(t, "the end of all calls", func() bool {
		p := w.onlyPool()
		return p.Requests() == 0 && len(p.Queues) == 0 && len(p.Sessions) == 0
	})
}

var soakWord = regexp.MustCompile(`number \d+-\d+-\d+\.`)

// ask asks one question after the other, until ctx ends.
func (s *soak) ask(ctx context.Context, seat *soakSeat, lane int) {
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(lane)))
	var session any     // of a conversation
	var talked []string // in it
	known := 0          // how many bridges were lost
	for n := 0; ctx.Err() == nil; n++ {
		c, lost := seat.client()
		if lost > known { // with their conversations
			session, talked, known = nil, nil, lost
		}
		word := fmt.Sprintf("number %d-%d-%d.", seat.number, lane, n)
		args := map[string]any{"timeout": 60000}
		own := []string{word}
		// A bridge keeps the last 50 conversations, and each call begins one.
		fake := []string{"echo", "slow=300", "narrate", "remember", "remember", "remember"}[random.IntN(6)]
		if fake == "remember" {
			args["sessionId"] = session
			own = append(slices.Clone(talked), word)
		}
		if args["sessionId"] == nil {
			delete(args, "sessionId")
			own = []string{word}
		}
		args["prompt"] = "fake:" + fake + " " + word
		asking, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
		cancels := random.IntN(6) == 0
		if cancels {
			time.AfterFunc(time.Duration(random.IntN(400))*time.Millisecond, cancel)
		}
		r, err := c.CallTool(asking, &mcp.CallToolParams{Name: "query", Arguments: args})
		timedOut := asking.Err() == context.DeadlineExceeded
		cancel()
		s.calls.Add(1)
		_, lostNow := seat.client()
		killed := lostNow > lost
		switch {
		case err != nil && (cancels || killed) && !timedOut:
			s.count("cancelled, or lost with its bridge")
			if fake == "remember" { // the conversation may have it all the same
				session, talked = nil, nil
			}
			continue
		case err != nil:
			s.t.Errorf("%s: %v", word, err)
			continue
		}
		text := r.Content[0].(*mcp.TextContent).Text
		switch {
		case r.IsError && strings.Contains(text, "ended without a result") && s.dead.Load() > 0:
			s.count("lost with its agent")
			continue
		case r.IsError && killed:
			continue
		case r.IsError:
			s.t.Errorf("%s has the error %s", word, text)
			continue
		}
		s.count("answered")
		var got []string // a conversation that was replayed names them again and again
		for _, word := range soakWord.FindAllString(text, -1) {
			if !slices.Contains(got, word) {
				got = append(got, word)
			}
		}
		switch fake {
		case "slow=300", "narrate":
			if len(got) > 0 || text != "slowly" && text != "The answer." {
				s.t.Errorf("%s has the answer %q", word, text)
			}
		case "echo":
			if !slices.Equal(got, []string{word}) {
				s.t.Errorf("%s has the answer %q", word, text)
			}
		default:
			if !slices.Equal(got, own) {
				s.t.Errorf("%q has the answer %q", own, tail(text, 300))
			}
			session, talked = r.Meta["sessionId"], own
			if len(own) == 5 { // a replay has all earlier ones
				session, talked = nil, nil
			}
		}
	}
}
