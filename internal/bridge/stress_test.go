package bridge

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
)

// 200 calls share 3 slots, and each has a process for itself, which crashes, hangs or does not
// stop. Each call ends in a way that its fault allows, and no process or file is left.
func TestStress(t *testing.T) {
	stress(t, agent.Spawned, 3, 200, []string{
		"echo", "echo", "crash", "killed", "silent", "hang", "say-and-hang", "stubborn", "grandchild=1", "grandchild", "noise", "exit=53",
	})
}

// 1,000 calls, or 200 with -short, in 5 workspaces share warm processes, which are killed,
// print garbage, hang and crash. Callers give up, and the disk is full at times. Each call
// ends in a way that its fault allows, and no process or file is left.
func TestWarmStress(t *testing.T) {
	calls := 1000
	if testing.Short() {
		calls = 200
	}
	stress(t, agent.Warmed, 8, calls, []string{
		"echo", "echo", "echo", "echo", "remember", "noise", "crash", "killed", "hang", "say-and-hang", "slow=20", "error=500", "empty", "narrate",
	})
}

// stress asks a fake agent that follows these instructions, in 5 workspaces. Callers give up.
// Warm processes are killed, and the disk is full at times.
func stress(t *testing.T, kind string, slots, calls int, fakes []string) {
	runner := fakeRunner(t, agent.Options{})
	b := newTestBridge(t, runner, func(c *Config) { c.Kind, c.MaxConcurrent = kind, slots })
	var dirs []string
	for range 5 {
		dirs = append(dirs, t.TempDir())
	}
	seed := stressSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))

	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() { // kills
		random := rand.New(rand.NewPCG(seed, 1))
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
			}
			if all := runner.Workers(); len(all) > 0 {
				if p, err := os.FindProcess(all[random.IntN(len(all))].PID); err == nil {
					p.Kill()
				}
			}
		}
	})
	faults.Go(func() { // disk full: a file replaces the directory of the runs for a while
		if runtime.GOOS == "windows" || kind == agent.Spawned {
			return // Windows renames no directory in use, and a process for one call has files there
		}
		roots, err := filepath.Glob(filepath.Join(os.TempDir(), "pollux-bridge-*"))
		if err != nil || len(roots) != 1 {
			t.Errorf("%v, %v", roots, err)
			return
		}
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			away := roots[0] + ".away"
			if os.Rename(roots[0], away) != nil {
				continue
			}
			os.WriteFile(roots[0], nil, 0o600)
			time.Sleep(30 * time.Millisecond)
			os.Remove(roots[0])
			if os.Rename(away, roots[0]) != nil { // the directory was created again meanwhile
				os.RemoveAll(away)
			}
		}
	})

	var mu sync.Mutex
	outcomes := make(map[string]int)
	var sessions []string
	var wg sync.WaitGroup
	callers := make(chan struct{}, 16)
	for i := range calls {
		callers <- struct{}{}
		fake := fakes[random.IntN(len(fakes))]
		timeout := Integer(5000 + random.IntN(20_000))
		if strings.Contains("hang say-and-hang stubborn grandchild", fake) {
			timeout = Integer(1 + random.IntN(300))
		}
		in := QueryInput{Prompt: fmt.Sprintf("fake:%s number %d.", fake, i), Common: Common{Timeout: &timeout, WorkingDirectory: dirs[random.IntN(len(dirs))]}}
		mu.Lock()
		if len(sessions) > 0 && random.IntN(4) == 0 {
			in.SessionID = sessions[random.IntN(len(sessions))]
		}
		mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		after := time.Duration(-1)
		if random.IntN(6) == 0 {
			after = time.Duration(random.IntN(200)) * time.Millisecond
		}
		wg.Go(func() {
			defer func() { <-callers }()
			defer cancel()
			if after >= 0 {
				defer time.AfterFunc(after, cancel).Stop()
			}
			a, err := b.Ask(ctx, in, func(string) {})
			mu.Lock()
			defer mu.Unlock()
			var fault *agent.Error
			outcome := ""
			switch {
			case err == nil && a.Meta.Partial:
				outcome = "partial"
			case err == nil:
				outcome = "answer"
				own := fmt.Sprintf("number %d.", i)
				if strings.Contains("echo remember", fake) && in.SessionID == "" && (!strings.Contains(a.Text, own) || strings.Count(a.Text, "number ") != 1) {
					t.Errorf("call %d has another's answer: %q", i, a.Text)
				}
				sessions = append(sessions, a.Meta.SessionID)
				sessions = sessions[max(0, len(sessions)-continued.items/2):]
			case errors.Is(err, context.Canceled):
				outcome = "cancelled"
			case errors.Is(err, errTimeout):
				outcome = "timeout"
			case errors.As(err, &fault):
				outcome = string(fault.Kind)
			case strings.Contains(err.Error(), "no room for a run"):
				outcome = "no room"
			case strings.Contains(err.Error(), "no free slot"):
				outcome = "refused"
			case in.SessionID != "" && strings.Contains(err.Error(), "there is no session"):
				outcome = "no session"
			default:
				outcome = err.Error()
			}
			outcomes[outcome]++
			// The replay of a conversation may contain another fault.
			if in.SessionID == "" && !slices.Contains(mayEnd(fake, after >= 0), outcome) {
				t.Errorf("call %d, %s, ends with %q: %v", i, fake, outcome, err)
			}
		})
	}
	wg.Wait()
	close(stop)
	faults.Wait()
	t.Logf("outcomes: %v", outcomes)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if all := runner.Workers(); len(all) > 0 {
		t.Errorf("workers: %+v", all)
	}
	if running, waiting := b.running.Load(), b.waiting.Load(); running+waiting != 0 {
		t.Errorf("%d slots are taken, %d calls wait", running, waiting)
	}
}

// mayEnd lists the possible outcomes of a call with that fault. Any process may
// be killed, and the disk may be full at any time.
func mayEnd(fake string, cancelled bool) []string {
	ends := []string{"timeout", string(agent.Crashed), "no room", "refused"}
	if cancelled {
		ends = append(ends, "cancelled")
	}
	name, _, _ := strings.Cut(fake, "=")
	switch name {
	case "hang", "killed", "silent":
		return ends
	case "exit":
		return append(ends, string(agent.TurnLimit))
	case "crash", "say-and-hang", "stubborn":
		return append(ends, "partial")
	case "error":
		return append(ends, string(agent.Capacity), string(agent.Failed))
	case "empty":
		return append(ends, string(agent.Empty))
	}
	return append(ends, "answer", "partial")
}

var seedFlag = flag.Uint64("seed", 0, "seed of the stress tests; random by default")

// stressSeed returns the seed of a stress test. A test that fails prints it.
func stressSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat the same choices: go test ./internal/bridge -run %s -seed %d", t.Name(), seed)
	return seed
}
