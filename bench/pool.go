package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent/shared"
	"pollux/internal/fakemodel"
)

const (
	// fewSessions and manySessions are the numbers of bridges whose memory is measured.
	fewSessions, manySessions = 5, 20
	// serviceLimit is how many requests the service accepts at once, and serviceTime how
	// long each one takes there.
	serviceLimit, serviceTime = 3, time.Second
	// settleTime is the time between the last call and a look at the memory.
	settleTime = time.Second
	// addedCalls is the number of calls that show what the pool adds to each.
	addedCalls = 1000
)

// A sharing holds what sessions in one directory cost together, in megabytes and in
// milliseconds, and how a service with a limit treats them.
type sharing struct {
	few, fewShared, many, manyShared []float64 // memory
	first, second, later             []float64 // calls
	burst, refused, failed           []float64 // calls at once
}

// A service is a model whose limit can be changed.
type service struct {
	mu       sync.Mutex
	limit    int // requests at once; 0 is any number
	took     time.Duration
	inFlight int
	refused  int
}

// set changes the limit and returns how many requests the service has refused since the
// last change.
func (s *service) set(limit int, took time.Duration) (refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused = s.refused
	s.limit, s.took, s.refused = limit, took, 0
	return refused
}

func (s *service) reply(fakemodel.Request) fakemodel.Reply {
	s.mu.Lock()
	full := s.limit > 0 && s.inFlight >= s.limit
	if full {
		s.refused++
		s.mu.Unlock()
		return fakemodel.Reply{Status: http.StatusTooManyRequests, Message: "too many requests"}
	}
	s.inFlight++
	took := s.took
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	return fakemodel.Say("hello")
}

// A sharer is a bridge. Several of them run in one directory.
type sharer struct {
	name string
	*subject
	env   []string
	later int
	// pool is the command that manages the processes that the bridges share. It is empty
	// if they share none.
	pool []string
}

// runPool compares bridges that share warm processes with bridges that do not, and with
// the peer's.
func runPool(binary, peer, cli string, runs int) error {
	var model service
	ours, end, err := newSubject(binary, cli, model.reply)
	if err != nil {
		return err
	}
	defer end()
	shares := func(env []string) []string { return withEnv(env, "POLLUX_POOL=on") }
	pool := []string{ours.argv[0], "pool"}
	all := []sharer{
		{"pool", ours, shares(ours.real), laterCalls, pool},
		{"off", ours, ours.real, laterCalls, nil},
	}
	if peer != "" {
		all = append(all, sharer{"peer", ours.as(peer), ours.real, laterStarts, nil})
	}
	results := make([]sharing, len(all))
	var names []string
	for i, s := range all {
		names = append(names, s.name)
		for range runs {
			if err := s.measure(&model, &results[i]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Printf("\nSessions in one directory; the real CLI; medians of %d runs%s\n", runs, ofPeer(peer))
	fmt.Print("RSS is the sum of VmRSS of all processes, PSS counts a page that n processes share as 1/n.\n\n")
	printTable(names, results, []figure[sharing]{
		{"5 sessions, one query each: RSS", "MB", func(s sharing) []float64 { return s.few }},
		{"  PSS", "MB", func(s sharing) []float64 { return s.fewShared }},
		{"20 sessions, one query each: RSS", "MB", func(s sharing) []float64 { return s.many }},
		{"  PSS", "MB", func(s sharing) []float64 { return s.manyShared }},
		{"first call of the first session", "ms", func(s sharing) []float64 { return s.first }},
		{"first call of the second session", "ms", func(s sharing) []float64 { return s.second }},
		{"a later call of it", "ms", func(s sharing) []float64 { return s.later }},
		{"5 sessions ask at once, limit of 3: 429s", "  ", func(s sharing) []float64 { return s.refused }},
		{"  calls that failed", "  ", func(s sharing) []float64 { return s.failed }},
		{"  until all calls have ended", "ms", func(s sharing) []float64 { return s.burst }},
	})
	for i, r := range results {
		fmt.Printf("%s: the first call of the second session takes %.2f x a later call\n", names[i], middle(r.second)/middle(r.later))
	}
	all[0].env = shares(ours.fake)
	return all[0].alone(func() error { return printAdded(ours, all[0].env) })
}

// measure measures everything once.
func (s *sharer) measure(model *service, r *sharing) error {
	for _, f := range []func() error{
		func() error { return s.memory(fewSessions, &r.few, &r.fewShared) },
		func() error { return s.memory(manySessions, &r.many, &r.manyShared) },
		func() error { return s.speed(r) },
		func() error { return s.burst(model, r) },
	} {
		if err := s.alone(f); err != nil {
			return err
		}
	}
	return nil
}

// alone measures with a pool that nobody has used yet, and stops it.
func (s *sharer) alone(measure func() error) error {
	err := measure()
	if s.pool != nil {
		_, stopErr := s.ofPool("stop", "--now")
		err = errors.Join(err, stopErr)
	}
	return err
}

// ofPool runs a subcommand of `pollux pool`.
func (s *sharer) ofPool(args ...string) ([]byte, error) {
	cmd := exec.Command(s.pool[0], slices.Concat(s.pool[1:], args)...)
	cmd.Env = s.env
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("pollux pool %s: %w: %s", args[0], err, failed.Stderr)
	}
	return out, err
}

// An asker is an MCP client with its bridge.
type asker struct {
	*mcp.ClientSession
	cmd *exec.Cmd
}

// together calls use with the clients of n bridges.
func (s *sharer) together(n int, use func([]asker) error) error {
	var all []asker
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for range n {
		session, cmd, err := s.open(s.env)
		if err != nil {
			return err
		}
		all = append(all, asker{session, cmd})
	}
	return use(all)
}

// query asks one question.
func (s *subject) query(c asker) (took float64, err error) {
	took, _, err = call(c.ClientSession, map[string]any{"prompt": "hi", "workingDirectory": s.project})
	return took, err
}

// memory measures n sessions that have asked one question each.
func (s *sharer) memory(n int, rss, pss *[]float64) error {
	return s.together(n, func(all []asker) error {
		for _, c := range all {
			if _, err := s.query(c); err != nil {
				return err
			}
		}
		time.Sleep(settleTime)
		return s.footprint(all, rss, pss)
	})
}

// footprint adds the memory of bridges, and of everything that works for them, to the
// results.
func (s *sharer) footprint(all []asker, rss, pss *[]float64) error {
	var roots []int
	for _, c := range all {
		roots = append(roots, c.cmd.Process.Pid)
	}
	if s.pool != nil {
		out, err := s.ofPool("status", "--json")
		var pools []shared.Status
		if err == nil {
			err = json.Unmarshal(out, &pools)
		}
		if err == nil && len(pools) != 1 {
			err = fmt.Errorf("%d pools are running, not 1", len(pools))
		}
		if err != nil {
			return err
		}
		roots = append(roots, pools[0].PID)
	}
	var sum, share float64
	counted := make(map[int]bool) // the pool is a child of the bridge that started it
	for _, root := range roots {
		for _, pid := range descendants(root) {
			if counted[pid] {
				continue
			}
			counted[pid] = true
			own, err := resident(pid)
			if err != nil {
				return err
			}
			part, err := proportional(pid)
			if err != nil {
				return err
			}
			sum, share = sum+own, share+part
		}
	}
	*rss, *pss = append(*rss, sum), append(*pss, share)
	return nil
}

// proportional returns a process's share of the resident memory, in MB.
func proportional(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "\nPss:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has exited", pid)
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	return kb / 1024, err
}

// speed measures the calls of two sessions.
func (s *sharer) speed(r *sharing) error {
	return s.together(2, func(all []asker) error {
		took, err := s.query(all[0])
		if err != nil {
			return err
		}
		r.first = append(r.first, took)
		time.Sleep(settleTime)
		if took, err = s.query(all[1]); err != nil {
			return err
		}
		r.second = append(r.second, took)
		for range s.later {
			time.Sleep(200 * time.Millisecond) // a user's pause between calls
			if took, err = s.query(all[1]); err != nil {
				return err
			}
			r.later = append(r.later, took)
		}
		return nil
	})
}

// burst lets sessions that have asked before ask at once.
func (s *sharer) burst(model *service, r *sharing) error {
	return s.together(fewSessions, func(all []asker) error {
		for _, c := range all {
			if _, err := s.query(c); err != nil {
				return err
			}
		}
		model.set(serviceLimit, serviceTime)
		start := time.Now()
		errs := make(chan error)
		for _, c := range all {
			go func() {
				_, err := s.query(c)
				errs <- err
			}()
		}
		failed := 0.0
		for range all {
			if err := <-errs; err != nil {
				failed++
			}
		}
		r.burst = append(r.burst, ms(time.Since(start)))
		r.failed = append(r.failed, failed)
		r.refused = append(r.refused, float64(model.set(0, 0)))
		return nil
	})
}

// printAdded prints how much longer a warm call takes through the pool. The CLI only
// echoes. Calls through the pool and without it alternate.
func printAdded(ours *subject, shares []string) error {
	var took [2][]float64
	err := ours.serve(shares, func(through *mcp.ClientSession, _ *exec.Cmd) error {
		return ours.serve(ours.fake, func(without *mcp.ClientSession, _ *exec.Cmd) error {
			for i := range addedCalls + 1 {
				for j, c := range []*mcp.ClientSession{through, without} {
					one, _, err := call(c, map[string]any{"prompt": "fake:echo", "workingDirectory": ours.project})
					if err != nil {
						return err
					}
					if i > 0 { // the first call starts the process
						took[j] = append(took[j], one)
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	fmt.Printf("\nA warm call of a CLI that only echoes; %d calls each\n\n", addedCalls)
	fmt.Printf("%-40s %12s %12s %12s\n", "", "pool", "off", "added")
	for _, f := range []struct {
		name string
		of   func([]float64) float64
	}{
		{"median", middle},
		{"99 of 100 below", func(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)*99/100] }},
	} {
		through, without := f.of(took[0]), f.of(took[1])
		fmt.Printf("%-40s %9.2f ms %9.2f ms %9.2f ms\n", f.name, through, without, through-without)
	}
	return nil
}
