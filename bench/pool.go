package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent/shared"
	"pollux/internal/fakemodel"
)

const (
	// manySessions is the number of bridges whose memory is measured, and fewSessions the number
	// of those that ask at the same time.
	manySessions, fewSessions = 10, 5
	// serviceLimit is how many requests the service accepts at once, and serviceTime how
	// long each one takes there.
	serviceLimit, serviceTime = 3, time.Second
)

// A service is a model whose limit can be changed.
type service struct {
	mu       sync.Mutex
	limit    int // requests at once; 0 is any number
	took     time.Duration
	inFlight int
}

// set changes the limit and the time for each request.
func (s *service) set(limit int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.took = limit, took
}

func (s *service) reply(fakemodel.Request) fakemodel.Reply {
	s.mu.Lock()
	full := s.limit > 0 && s.inFlight >= s.limit
	if full {
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
	*subject
	env   []string
	later int
	// pool is the command that manages the processes that the bridges share. It is empty
	// if they share none.
	pool []string
}

// measurePool compares bridges that share warm processes with bridges that do not, and with
// the peer's.
func measurePool(t *table, s setup) error {
	var model service
	ours, end, err := newSubject(s, model.reply)
	if err != nil {
		return err
	}
	defer end()
	pool := sharer{ours, withEnv(ours.real, "POLLUX_POOL=on"), laterCalls, []string{ours.argv[0], "pool"}}
	if err := pool.measure(t.column("pool"), &model); err != nil {
		return err
	}
	if err := (&sharer{ours, ours.real, laterCalls, nil}).measure(t.column("off"), &model); err != nil {
		return fmt.Errorf("without the pool: %w", err)
	}
	return s.peer(t, ours, func(peer *subject, col column) error {
		return (&sharer{peer, ours.real, laterStarts, nil}).measure(col, &model)
	})
}

// measure measures everything in all runs.
func (s *sharer) measure(col column, model *service) error {
	// Memory hardly differs from run to run.
	steps := []func() error{func() error { return s.memory(col, manySessions) }}
	for range col.runs {
		steps = append(steps, func() error { return s.speed(col) }, func() error { return s.burst(col, model) })
	}
	for _, step := range steps {
		if err := s.alone(step); err != nil {
			return err
		}
	}
	return nil
}

// alone measures with a new pool, and stops it.
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

// sessions calls use with the clients of n bridges.
func (s *sharer) sessions(n int, use func([]asker) error) error {
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
func (s *sharer) query(c asker) (time.Duration, error) {
	took, _, err := call(c.ClientSession, s.asking("hi"))
	return took, err
}

// queryEach lets all sessions ask one question, one after the other.
func (s *sharer) queryEach(all []asker) error {
	for _, c := range all {
		if _, err := s.query(c); err != nil {
			return err
		}
	}
	return nil
}

// memory measures n sessions that have asked one question each.
func (s *sharer) memory(col column, n int) error {
	return s.sessions(n, func(all []asker) error {
		if err := s.queryEach(all); err != nil {
			return err
		}
		time.Sleep(settleTime)
		pids, err := s.pids(all)
		if err != nil {
			return err
		}
		mb, err := memoryOf(pids, proportional)
		col.add(fmt.Sprintf("memory of all processes, %d sessions, one question each", n), "MB", mb)
		return err
	})
}

// pids returns the processes of bridges, and everything that works for them.
func (s *sharer) pids(all []asker) (pids []int, err error) {
	for _, c := range all {
		pids = append(pids, family(c.cmd.Process.Pid)...)
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
			return nil, err
		}
		pids = append(pids, family(pools[0].PID)...)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil // the pool is a child of the bridge that started it
}

// speed measures the calls of two sessions.
func (s *sharer) speed(col column) error {
	return s.sessions(2, func(all []asker) error {
		took, err := s.query(all[0])
		if err != nil {
			return err
		}
		col.add("first question of the first session", "ms", ms(took))
		time.Sleep(settleTime)
		second, err := s.query(all[1])
		if err != nil {
			return err
		}
		col.add("first question of the second session", "ms", ms(second))
		for range s.later {
			time.Sleep(callPause)
			if took, err = s.query(all[1]); err != nil {
				return err
			}
			col.add("a later question of it", "ms", ms(took))
		}
		return nil
	})
}

// burst lets sessions that have asked before ask at once.
func (s *sharer) burst(col column, model *service) error {
	return s.sessions(fewSessions, func(all []asker) error {
		if err := s.queryEach(all); err != nil {
			return err
		}
		model.set(serviceLimit, serviceTime)
		took, failed := together(len(all), func(i int) error {
			_, err := s.query(all[i])
			return err
		})
		model.set(0, 0)
		col.add(fmt.Sprintf("%d ask at the same time, limit of %d: failed", fewSessions, serviceLimit), "", float64(len(failed)))
		if len(failed) == 0 {
			col.add("  until all have their answers", "ms", ms(took))
		} else {
			col.skip("  until all have their answers", "not all have one")
		}
		return nil
	})
}
