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
	ours, end, err := newSubject(binary, cli, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("hello") })
	if err != nil {
		return err
	}
	defer end()
	type contender struct {
		name string
		*subject
		env   []string
		later int
	}
	with := func(env []string, more ...string) []string {
		return withEnv(env, append(more, "GEMINI_MAX_CONCURRENT=8")...)
	}
	all := []contender{
		{"warm", ours, with(ours.real), laterCalls},
		{"spawn", ours, with(ours.real, "GEMINI_RUNNER=spawn"), laterStarts},
	}
	if peer != "" {
		all = append(all, contender{"peer", ours.as(peer), with(ours.real), laterStarts})
	}
	results := make([]warmth, len(all))
	for i, c := range all {
		for range runs {
			if err := c.warmth(c.env, c.later, &results[i]); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	fmt.Printf("\nWarm processes; the real CLI, a model that answers at once; medians of %d runs%s\n\n", runs, ofPeer(peer))
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	printTable(names, results, []figure[warmth]{
		{"the first call", "ms", func(w warmth) []float64 { return w.first }},
		{"a later call, new session", "ms", func(w warmth) []float64 { return w.later }},
		{"a follow-up in a session", "ms", func(w warmth) []float64 { return w.followUp }},
		{"8 calls at once", "ms", func(w warmth) []float64 { return w.eight }},
		{"resident memory after one call, in all", "MB", func(w warmth) []float64 { return w.memory }},
		{"  the most while 8 calls run", "MB", func(w warmth) []float64 { return w.memoryEight }},
	})
	// The bridge's own share: a warm call without the CLI.
	var own []float64
	for range runs {
		err := ours.serve(with(ours.fake), func(c *mcp.ClientSession, _ *exec.Cmd) error {
			for i := range laterCalls + 1 {
				took, _, err := call(c, map[string]any{"prompt": "fake:echo", "workingDirectory": ours.project})
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

// A figure is measured for several contenders.
type figure[R any] struct {
	name, unit string
	of         func(R) []float64
}

// printTable prints the medians of each contender's results. Ratios are relative to the
// first contender.
func printTable[R any](names []string, results []R, figures []figure[R]) {
	fmt.Printf("%-40s", "")
	for _, name := range names {
		fmt.Printf(" %12s", name)
	}
	fmt.Println()
	for _, f := range figures {
		fmt.Printf("%-40s", f.name)
		base := middle(f.of(results[0]))
		for i, r := range results {
			v := middle(f.of(r))
			fmt.Printf(" %9.1f %s", v, f.unit)
			if i > 0 && base > 0 {
				fmt.Printf(" (x%.1f)", v/base)
			}
		}
		fmt.Println()
	}
}

// ofPeer names the peer in a heading.
func ofPeer(peer string) string {
	if peer == "" {
		return ""
	}
	return "; the peer is " + peer
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
	for _, p := range descendants(pid) {
		own, _ := resident(p)
		mb += own
	}
	return mb
}

// descendants returns a process and its descendants.
func descendants(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		data, _ := os.ReadFile(list)
		for f := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, descendants(child)...)
			}
		}
	}
	return all
}
