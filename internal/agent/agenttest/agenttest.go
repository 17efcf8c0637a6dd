// Package agenttest holds code that the runners' tests share.
package agenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

// Timeout is how long a step may take on a busy machine.
const Timeout = 5 * time.Minute

// WantKind checks an error's kind, and that its text contains words.
func WantKind(t *testing.T, err error, want agent.Kind, words ...string) {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Fatalf("got error %v, want one of kind %q", err, want)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			t.Errorf("no %q in %q", w, e)
		}
	}
}

// WantVersions checks which versions of an agent are refused, and how.
func WantVersions(t *testing.T, row *agent.Agent, versions map[string]agent.Kind) {
	t.Helper()
	for version, want := range versions {
		err := row.ReadOnly(agent.Source{}, agent.Program{Version: version})
		if want != "" {
			WantKind(t, err, want)
		} else if err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// Isolate gives a test its own home and temporary directory. At the end of the
// test, files there that match the pattern are errors, and so are processes that
// use the directory.
func Isolate(t *testing.T, pattern string) {
	t.Helper()
	systest.SetHome(t, t.TempDir())
	systest.SetTemp(t, MemoryDir(t))
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), pattern)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		// The system ends a killed process some time after the signal.
		for deadline := time.Now().Add(Timeout); processes(t) > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%d processes are left", processes(t))
				break
			}
		}
	})
}

// MemoryDir returns a directory for temporary files, in memory if the system has such a place:
// on a busy disk, the files of many short processes take most of a test's time.
func MemoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pollux-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// processes counts the running processes that name the temporary directory. On Windows
// they keep files open there, so that the files are left.
func processes(t *testing.T) (n int) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return 0
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, _ := os.ReadFile(f)
		if strings.Contains(string(data), os.TempDir()) {
			n++
		}
	}
	return n
}

// A Bench is a runner under test, with a workspace and a source.
type Bench struct {
	agent.Runner
	T      *testing.T
	Dir    string
	Source agent.Source
	Spawn  bool // each request gets its own process

	mu     sync.Mutex
	events []string
}

// NewBench returns a bench, which it closes at the end of the test.
func NewBench(t *testing.T, dir string, from agent.Source, r agent.Runner) *Bench {
	t.Helper()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Bench{Runner: r, T: t, Dir: dir, Source: from}
}

// Run implements [agent.Runner]. It adds the source if the request has none, and Spawn.
func (b *Bench) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if req.Source.Command == "" {
		req.Source.Command = b.Source.Command
	}
	if req.Source.Env == nil {
		req.Source.Env = b.Source.Env
	}
	req.Spawn = req.Spawn || b.Spawn
	return b.Runner.Run(ctx, req, emit)
}

// Ask asks and waits until no process works on the request.
func (b *Bench) Ask(ctx context.Context, req agent.Request) (agent.Result, error) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if req.Dir == "" {
		req.Dir = b.Dir
	}
	released := make(chan struct{})
	req.Released = func() { close(released) }
	r, err := b.Run(ctx, req, func(ev agent.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, fmt.Sprintf("%T%+v", ev, ev))
	})
	select {
	case <-released:
	case <-time.After(Timeout):
		b.T.Error("the request was never released")
	}
	return r, err
}

// Want asks, and checks the answer.
func (b *Bench) Want(prompt, answer string) agent.Result {
	b.T.Helper()
	r, err := b.Ask(b.T.Context(), agent.Request{Prompt: prompt})
	if err != nil || r.Answer != answer {
		b.T.Errorf("%q is answered by %q, %v; want %q", prompt, r.Answer, err, answer)
	}
	return r
}

// Events returns the events so far, as text.
func (b *Bench) Events() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// WantEvent checks for an event that starts with the text.
func (b *Bench) WantEvent(start string) {
	b.T.Helper()
	events := b.Events()
	if !slices.ContainsFunc(events, func(ev string) bool { return strings.HasPrefix(ev, start) }) {
		b.T.Errorf("no %s in %q", start, events)
	}
}

// Until waits for a condition to hold.
func (b *Bench) Until(what string, holds func() bool) {
	b.T.Helper()
	for deadline := time.Now().Add(Timeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.T.Fatalf("%s did not happen; %+v", what, b.Workers())
		}
	}
}

// PID returns the process ID of the only worker.
func (b *Bench) PID() int {
	b.T.Helper()
	all := b.Workers()
	if len(all) != 1 {
		b.T.Fatalf("workers: %+v", all)
	}
	return all[0].PID
}

// Install installs a fake agent in a directory, and returns its command.
func Install(t *testing.T, install func(dir, version string) (command string, err error), dir, version string) string {
	t.Helper()
	command, err := install(dir, version)
	if err != nil {
		t.Fatal(err)
	}
	return command
}

// WriteProgram writes a program with a name into a directory and returns its path. unix is
// a shell script, windows a batch file.
func WriteProgram(t *testing.T, dir, name, unix, windows string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	text := "#!/bin/sh\n" + unix + "\n"
	if runtime.GOOS == "windows" {
		path += ".cmd"
		text = "@echo off\r\n" + strings.ReplaceAll(windows, "\n", "\r\n") + "\r\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
