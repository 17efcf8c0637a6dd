package bridge

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
)

// A script is an [agent.Runner] with scripted answers.
type script func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error)

func (s script) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	defer req.Released()
	if req.Pace == nil { // without a queue
		return s(ctx, req, emit)
	}
	if err := req.Pace(ctx); err != nil {
		return agent.Result{}, err
	}
	return s(ctx, req, emit)
}

func (script) Ahead(agent.Source, string) {}
func (script) Forget(string)              {}
func (script) Workers() []agent.Worker    { return nil }

func (script) Check(context.Context, agent.Source) (agent.Program, error) {
	return agent.Program{Path: "/bin/gemini", Version: "0.61.0"}, nil
}
func (script) Close() error { return nil }

// say returns the result of a successful run.
func say(text string) (agent.Result, error) {
	return agent.Result{Answer: text, Model: "gemini-test"}, nil
}

// hang waits for the context to end.
func hang(ctx context.Context) (agent.Result, error) {
	<-ctx.Done()
	return agent.Result{}, context.Cause(ctx)
}

// hanging is a runner that never answers.
var hanging = script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
	return hang(ctx)
})

// fakeRunner returns a real runner of a fake agent. It isolates the test, so that no file or
// process may be left, and puts the fake on the PATH.
func fakeRunner(t *testing.T, opts agent.Options) agent.Runner {
	t.Helper()
	agenttest.Isolate(t, "*")
	command := agenttest.Install(t, fakecli.Install, t.TempDir(), "0.61.0")
	t.Setenv("PATH", filepath.Dir(command)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	runner, err := agents.Open(agents.Default(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return runner
}

// answering returns a runner that always gives the same answer.
func answering(text string) script {
	return func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) { return say(text) }
}

// A parrot is a runner that repeats the prompt. It remembers sessions until
// Forget, as a warm runner does.
type parrot struct {
	script
	mu    sync.Mutex
	known map[string]bool
	asked []agent.Request
}

func newParrot() *parrot {
	p := &parrot{known: make(map[string]bool)}
	p.script = func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, req)
		if strings.Contains(req.Prompt, "fail") {
			return agent.Result{}, &agent.Error{Kind: agent.Crashed}
		}
		p.known[req.Conversation] = true
		return agent.Result{Answer: "You said: " + req.Prompt, Model: "m", Runner: agent.Warmed}, nil
	}
	return p
}

func (p *parrot) Forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, id)
}

func (p *parrot) last() agent.Request { return p.asked[len(p.asked)-1] }
