package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent/acp"
	"pollux/internal/fakemodel"
	"pollux/internal/sys"
)

const (
	// laterCalls is the number of calls that follow the first, for warm processes, and
	// laterStarts for one process per call.
	laterCalls, laterStarts = 20, 1
	// slowPrompt is a prompt for whose answer the model takes slowTime.
	slowPrompt, slowTime = "hi, slowly", 300 * time.Millisecond
	// callPause is a user's pause between calls.
	callPause = 200 * time.Millisecond
	// callsAtOnce is the number of concurrent calls.
	callsAtOnce = 8
)

// measureWarm compares warm processes with one process per call, for our bridge and
// for the peer's, with the real CLI on a model that answers at once.
func measureWarm(t *table, s setup) error {
	ours, end, err := newSubject(s, func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Prompt, slowPrompt) {
			time.Sleep(slowTime)
		}
		return hello(r)
	})
	if err != nil {
		return err
	}
	defer end()
	concurrent := fmt.Sprintf("GEMINI_MAX_CONCURRENT=%d", callsAtOnce)
	env := withEnv(ours.real, concurrent)
	if err := ours.warmth(t.column("warm"), env, laterCalls); err != nil {
		return err
	}
	if err := ours.warmth(t.column("spawn"), withEnv(env, "GEMINI_RUNNER=spawn"), laterStarts); err != nil {
		return fmt.Errorf("spawn: %w", err)
	}
	return s.peer(t, ours, func(peer *subject, col column) error { return peer.warmth(col, env, laterStarts) })
}

// warmth measures one bridge in all runs.
func (s *subject) warmth(col column, env []string, later int) error {
	for range col.runs {
		err := s.serve(env, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
			return s.sequence(col, c, func() []int { return family(cmd.Process.Pid) }, later)
		})
		if err != nil {
			return err
		}
		if col.index == 0 {
			if err := s.echoes(col); err != nil {
				return err
			}
		}
	}
	return nil
}

// sequence measures calls of a client, one kind after the other.
func (s *subject) sequence(col column, c *mcp.ClientSession, pids func() []int, later int) error {
	took, last, err := call(c, s.asking("hi"))
	if err != nil {
		return err
	}
	col.add("the first call", "ms", ms(took))
	if err := col.addMemory("after one call, in all", pids); err != nil {
		return err
	}
	const spaced, right = "a later call, new session", "  right after the one before"
	medians := map[string]float64{}
	for _, m := range []struct {
		name, prompt string
		pause        time.Duration
	}{
		{spaced, "hi", callPause},
		{right, "hi", 0},
		{"  after a pause, model takes 300 ms", slowPrompt, callPause},
		{"  right after the one before, 300 ms", slowPrompt, 0},
	} {
		time.Sleep(callPause)
		var all []float64
		for range later {
			if took, last, err = call(c, s.asking(m.prompt)); err != nil {
				return err
			}
			all = append(all, ms(took))
			time.Sleep(m.pause)
		}
		col.add(m.name, "ms", all...)
		medians[m.name] = median(all)
	}
	col.add("right after the one before: ratio to a later call", times, medians[right]/medians[spaced])
	if col.index == 0 {
		own, err := s.newSessions(later)
		if err != nil {
			return err
		}
		col.add("the CLI's own session/new", "ms", own...)
		col.add("right after the one before: ratio to session/new", times, medians[right]/median(own))
	}
	again := s.asking("hi")
	if id, _ := last.Meta["sessionId"].(string); id != "" {
		again["sessionId"] = id
	}
	for range later {
		took, _, err := call(c, again)
		if err != nil {
			return err
		}
		col.add("a follow-up in a session", "ms", ms(took))
	}
	return s.atOnce(col, c, pids)
}

// newSessions returns how long a process of the real CLI takes for each new session, without
// a bridge.
func (s *subject) newSessions(n int) (all []float64, err error) {
	cmd := s.cliCommand(s.real, "--acp")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	child, err := sys.StartChild(cmd)
	if err != nil {
		return nil, err
	}
	defer child.Stop(endTimeout)
	conn := acp.NewConn(out, in, false, nobody{})
	defer conn.Close()
	if err := conn.Initialize(context.Background()); err != nil {
		return nil, fmt.Errorf("the CLI, initialize: %w", err)
	}
	for i := range n + 1 {
		began := time.Now()
		if _, err := conn.NewSession(context.Background(), s.project); err != nil {
			return nil, fmt.Errorf("the CLI, session/new: %w", err)
		}
		if i > 0 { // the first one loads the rest of the CLI
			all = append(all, ms(time.Since(began)))
		}
	}
	return all, nil
}

// nobody is a client without files that ignores all updates.
type nobody struct{}

func (nobody) Update(acp.Update)                       {}
func (nobody) ReadFile(string, string) (string, error) { return "", errors.ErrUnsupported }
func (nobody) WriteFile(string, string, string) error  { return errors.ErrUnsupported }

// atOnce measures concurrent calls, and the memory meanwhile.
func (s *subject) atOnce(col column, c *mcp.ClientSession, pids func() []int) error {
	most := 0.0
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			sum := 0.0
			for _, pid := range pids() { // some end meanwhile
				if f, err := fields(pid, "status", "VmRSS"); err == nil {
					sum += f[0]
				}
			}
			most = max(most, sum)
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	took, failed := together(callsAtOnce, func(int) error {
		_, _, err := call(c, s.asking("hi"))
		return err
	})
	close(done)
	looking.Wait()
	if len(failed) > 0 {
		return failed[0]
	}
	col.add(fmt.Sprintf("%d calls at once", callsAtOnce), "ms", ms(took))
	col.add(fmt.Sprintf("  the most resident memory while %d calls run", callsAtOnce), "MB", most)
	return nil
}

// together runs n calls at once and returns how long they all took, and the errors.
func together(n int, do func(i int) error) (took time.Duration, failed []error) {
	errs := make(chan error)
	began := time.Now()
	for i := range n {
		go func() { errs <- do(i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	return time.Since(began), failed
}

// echoes measures the bridge's own share: warm calls without the CLI.
func (s *subject) echoes(col column) error {
	return s.serve(s.fake, func(c *mcp.ClientSession, _ *exec.Cmd) error {
		for i := range laterCalls + 1 {
			took, _, err := call(c, s.asking("fake:echo"))
			if err != nil {
				return err
			}
			if i > 0 { // the first call starts the process
				col.add("a later call of a CLI that only echoes", "ms", ms(took))
			}
		}
		return nil
	})
}
