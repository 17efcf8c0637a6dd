package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/fakemodel"
)

// laterCalls is the number of calls that follow the first, for warm processes
// and for one process per call.
const laterCalls, laterStarts = 20, 3

// A warmth holds what a bridge costs per call, in milliseconds, and in
// megabytes.
type warmth struct{ first, later, followUp, eight, memory, memoryEight []float64 }

// runWarm compares warm processes with one process per call, for our bridge and
// for the peer's, with the real CLI on a model that answers at once.
func runWarm(binary, peer, cli string, runs int) error {
	dir, err := scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	model, err := fakemodel.Start(func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("hello") })
	if err != nil {
		return err
	}
	defer model.Close()
	us := subject{project: filepath.Join(dir, "project")}
	if err := us.prepare(dir, cli, model.URL); err != nil {
		return err
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	type contender struct {
		name string
		subject
		env   []string
		later int
	}
	with := func(env []string, more ...string) []string {
		// Keep the last variable, which names the CLI, last.
		return slices.Concat(env[:len(env)-1], []string{"GEMINI_MAX_CONCURRENT=8"}, more, env[len(env)-1:])
	}
	ours := us
	ours.argv = []string{binary, "bridge"}
	all := []contender{
		{"warm", ours, with(us.real), laterCalls},
		{"spawn", ours, with(us.real, "GEMINI_RUNNER=spawn"), laterStarts},
	}
	if peer != "" {
		them := us
		them.argv = strings.Fields(peer)
		all = append(all, contender{"peer", them, with(us.real), laterStarts})
	}
	results := make([]warmth, len(all))
	for i, c := range all {
		for range runs {
			if err := c.warmth(c.env, c.later, &results[i]); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	fmt.Printf("\nWarm processes; the real CLI, a model that answers at once; medians of %d runs", runs)
	if peer != "" {
		fmt.Printf("; the peer is %s", peer)
	}
	fmt.Print("\n\n")
	fmt.Printf("%-40s", "")
	for _, c := range all {
		fmt.Printf(" %12s", c.name)
	}
	fmt.Println()
	for _, row := range []struct {
		name, unit string
		of         func(warmth) []float64
	}{
		{"the first call", "ms", func(w warmth) []float64 { return w.first }},
		{"a later call, new session", "ms", func(w warmth) []float64 { return w.later }},
		{"a follow-up in a session", "ms", func(w warmth) []float64 { return w.followUp }},
		{"8 calls at once", "ms", func(w warmth) []float64 { return w.eight }},
		{"resident memory after one call, in all", "MB", func(w warmth) []float64 { return w.memory }},
		{"  the most while 8 calls run", "MB", func(w warmth) []float64 { return w.memoryEight }},
	} {
		fmt.Printf("%-40s", row.name)
		base := middle(row.of(results[0]))
		for i := range all {
			v := middle(row.of(results[i]))
			fmt.Printf(" %9.1f %s", v, row.unit)
			if i > 0 {
				fmt.Printf(" (x%.1f)", v/base)
			}
		}
		fmt.Println()
	}
	// The bridge's own share: a warm call without the CLI.
	echo := ours
	var own []float64
	for range runs {
		err := echo.serve(with(us.fake), func(c *mcp.ClientSession, _ *exec.Cmd) error {
			for i := range laterCalls + 1 {
				took, _, err := call(c, map[string]any{"prompt": "fake:echo", "workingDirectory": echo.project})
				if err != nil {
					return err
				}
				if i > 0 {
					own = append(own, took)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(own)
	fmt.Printf("%-40s %9.2f ms (95 of 100 below %.2f)\n", "a later call of a CLI that only echoes",
		middle(own), own[len(own)*95/100])
	return nil
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func call(c *mcp.ClientSession, args map[string]any) (took float64, r *mcp.CallToolResult, err error) {
	start := time.Now()
	r, err = c.CallTool(context.Background(), &mcp.CallToolParams{Name: "query", Arguments: args})
	if err == nil && r.IsError {
		err = fmt.Errorf("the call failed: %+v", r.Content[0])
	}
	return ms(time.Since(start)), r, err
}

// warmth measures one bridge.
func (s *subject) warmth(env []string, later int, w *warmth) error {
	return s.serve(env, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
		args := func() map[string]any { return map[string]any{"prompt": "hi", "workingDirectory": s.project} }
		took, r, err := call(c, args())
		if err != nil {
			return err
		}
		w.first = append(w.first, took)
		w.memory = append(w.memory, family(cmd.Process.Pid))
		for range later {
			took, _, err := call(c, args())
			if err != nil {
				return err
			}
			w.later = append(w.later, took)
			time.Sleep(200 * time.Millisecond) // a user's pause between calls
		}
		id, _ := r.Meta["sessionId"].(string)
		for range later {
			again := args()
			if id != "" {
				again["sessionId"] = id
			}
			took, _, err := call(c, again)
			if err != nil {
				return err
			}
			w.followUp = append(w.followUp, took)
		}
		most := 0.0
		done := make(chan struct{})
		var looking sync.WaitGroup
		looking.Go(func() {
			for {
				most = max(most, family(cmd.Process.Pid))
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
		start := time.Now()
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() {
				_, _, err := call(c, args())
				errs <- err
			}()
		}
		for range cap(errs) {
			if e := <-errs; e != nil {
				err = e
			}
		}
		w.eight = append(w.eight, ms(time.Since(start)))
		close(done)
		looking.Wait()
		w.memoryEight = append(w.memoryEight, most)
		return err
	})
}

// family returns the resident memory of a process and its descendants, in
// megabytes.
func family(pid int) (mb float64) {
	mb, _ = resident(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		data, _ := os.ReadFile(list)
		for f := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(f); err == nil {
				mb += family(child)
			}
		}
	}
	return mb
}
