package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/config"
	"pollux/internal/sys/systest"
)

func TestConversation(t *testing.T) {
	p := newParrot()
	b := newTestBridge(t, p, nil)
	dir := t.TempDir()
	first, err := b.Ask(t.Context(), QueryInput{Prompt: "one", Common: Common{WorkingDirectory: dir, Model: "gemini-x"}}, nil)
	id := first.Meta.SessionID
	if err != nil || id == "" || p.last().Conversation != id || p.last().Replay != "" {
		t.Fatalf("got %+v, %v; asked %+v", first, err, p.last())
	}
	second, err := b.Ask(t.Context(), QueryInput{Prompt: "two", SessionID: id}, nil)
	asked := p.last()
	if err != nil || second.Meta.SessionID != id || asked.Conversation != id || asked.Prompt != "two" || asked.Model != "gemini-x" {
		t.Errorf("got %+v, %v; asked %+v", second, err, asked)
	}
	if resolved, _ := workingDirectory(dir); asked.Dir != resolved {
		t.Errorf("it works in %s", asked.Dir)
	}
	for _, words := range []string{"one", "You said: one", "two"} {
		if !strings.Contains(asked.Replay, words) {
			t.Errorf("no %q in the replay: %q", words, asked.Replay)
		}
	}
	// Conversations are independent.
	if _, err := b.Ask(t.Context(), QueryInput{Prompt: "three"}, nil); err != nil || p.last().Conversation == id || p.last().Replay != "" {
		t.Errorf("%v; asked %+v", err, p.last())
	}
	// A failed query is not part of the conversation.
	if _, err := b.Ask(t.Context(), QueryInput{Prompt: "fail", SessionID: id}, nil); err == nil {
		t.Error("no error")
	}
	if _, err := b.Ask(t.Context(), QueryInput{Prompt: "four", SessionID: id}, nil); err != nil || strings.Contains(p.last().Replay, "fail") {
		t.Errorf("%v; told %q", err, p.last().Replay)
	}
	if all := b.conversations.list(); len(all) != 2 || all[0].Queries+all[1].Queries != 4 {
		t.Errorf("sessions: %+v", all)
	}
	if !b.conversations.close(id) || b.conversations.close(id) || p.known[id] {
		t.Error("it is closed never, or twice, or not forgotten")
	}
	_, err = b.Ask(t.Context(), QueryInput{Prompt: "five", SessionID: id}, nil)
	systest.WantError(t, err, "no session", "omit sessionId")
}

// A keptParrot is the runner of a pool, which several bridges share.
type keptParrot struct {
	*parrot
	said map[string]int
	data map[string][]byte
	err  error // of Kept
}

func (p *keptParrot) Keep(id string, n int, data []byte) { p.said[id], p.data[id] = n, data }

func (p *keptParrot) Kept(_ context.Context, id string, n int) ([]byte, error) {
	if p.err != nil || p.said[id] <= n {
		return nil, p.err
	}
	return p.data[id], nil
}

// Another bridge of the pool continues a conversation whose ID it was given, with all that
// was said, in the same directory and with the same model. The first bridge then sees what
// the other one added.
func TestConversationOfAnotherBridge(t *testing.T) {
	p := &keptParrot{parrot: newParrot(), said: make(map[string]int), data: make(map[string][]byte)}
	start := func() *Bridge {
		cfg := Configure(agents.Default(), config.Defaults())
		cfg.StartInterval, cfg.StartJitter = 0, 0
		b, err := New(p, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	one, two := start(), start()
	dir := t.TempDir()
	ask := func(b *Bridge, id, prompt string) string {
		t.Helper()
		a, err := b.Ask(t.Context(), QueryInput{Prompt: prompt, SessionID: id, Common: Common{Model: "gemini-x"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Meta.SessionID
	}
	first, err := one.Ask(t.Context(), QueryInput{Prompt: "first", Common: Common{WorkingDirectory: dir}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := first.Meta.SessionID
	if got := ask(two, id, "second"); got != id || !strings.Contains(p.last().Replay, "You said: first") {
		t.Errorf("continued %q with %q", got, p.last().Replay)
	}
	if resolved, _ := workingDirectory(dir); p.last().Dir != resolved {
		t.Errorf("it works in %s", p.last().Dir)
	}
	ask(one, id, "third")
	if replay := p.last().Replay; !strings.Contains(replay, "You said: first") || !strings.Contains(replay, "You said: second") {
		t.Errorf("continued with %q", replay)
	}
	_, err = two.Ask(t.Context(), QueryInput{Prompt: "x", SessionID: "guessed"}, nil)
	systest.WantError(t, err, "no session")

	// If the pool cannot be asked, that is the error. A bridge's own conversations continue.
	p.err = errors.New("the pool is away")
	ask(one, id, "fourth")
	_, err = start().Ask(t.Context(), QueryInput{Prompt: "x", SessionID: id}, nil)
	systest.WantError(t, err, id, "cannot be looked up", "the pool is away", "omit sessionId")
}

func TestConversationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParrot()
		b := newTestBridge(t, p, nil)
		ask := func(id, prompt string) (string, error) {
			a, err := b.Ask(t.Context(), QueryInput{Prompt: prompt, SessionID: id}, nil)
			time.Sleep(time.Second)
			return a.Meta.SessionID, err
		}
		first, _ := ask("", "first")
		kept, _ := ask("", "kept")
		for i := range continued.items - 1 {
			if _, err := ask("", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ask(first, "x"); err == nil {
			t.Error("the least recently used conversation is still there")
		}
		if _, err := ask(kept, "x"); err != nil {
			t.Error(err)
		}
		if n := len(b.conversations.list()); n != continued.items || len(p.known) != n {
			t.Errorf("%d sessions, %d known", n, len(p.known))
		}
		time.Sleep(continued.after)
		_, err := ask(kept, "x")
		systest.WantError(t, err, "no session")
		if n := len(b.conversations.list()); n != 0 || len(p.known) != 0 {
			t.Errorf("%d sessions, %d known", n, len(p.known))
		}
		long, _ := ask("", strings.Repeat("x", MaxPrompt))
		_, err = ask(long, "more")
		systest.WantError(t, err, "start a new one")
		for range 20 { // each exchange with its echo
			if _, err := ask("", strings.Repeat("x", MaxPrompt)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(b.conversations.list()); n > continued.bytes/MaxPrompt/2 {
			t.Errorf("%d sessions of %d bytes", n, 2*MaxPrompt)
		}
	})
}

// Concurrent queries in a conversation run one after the other.
func TestConversationTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParrot()
		inner := p.script
		p.script = func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
			time.Sleep(time.Second)
			return inner(ctx, req, emit)
		}
		b := newTestBridge(t, p, nil)
		first, err := b.Ask(t.Context(), QueryInput{Prompt: "one"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := b.Ask(t.Context(), QueryInput{Prompt: "more", SessionID: first.Meta.SessionID}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !strings.Contains(p.last().Replay, "You said: more") {
			t.Errorf("the second knows only %q", p.last().Replay)
		}
	})
}

func TestJobs(t *testing.T) {
	gate := make(chan struct{})
	s := connect(t, newTestBridge(t, script(func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
		if strings.Contains(req.Prompt, "hang") {
			return hang(ctx)
		}
		emit(agent.ToolUse{Name: "read_file", Summary: "a.go"})
		select {
		case <-gate:
		case <-ctx.Done():
			return agent.Result{}, context.Cause(ctx)
		}
		return say("at last")
	}), nil), "test")
	start := func(args string) string {
		t.Helper()
		r, text := callTool(t, s, "start-job", args)
		id, _ := r.Meta["jobId"].(string)
		if r.IsError || id == "" || !strings.Contains(text, id) {
			t.Fatalf("%v %s", r.Meta, text)
		}
		return id
	}
	id := start(`{"tool":"query","arguments":{"prompt":"what?"}}`)
	if r, text := callTool(t, s, "wait-job", fmt.Sprintf(`{"jobId":%q,"timeout":0}`, id)); r.IsError || r.Meta["running"] != true || !strings.Contains(text, "call wait-job again") {
		t.Errorf("%v %s", r.Meta, text)
	}
	close(gate)
	for range 2 { // the result can be read twice
		if r, text := callTool(t, s, "wait-job", fmt.Sprintf(`{"jobId":%q}`, id)); r.IsError || !strings.HasPrefix(text, "at last") || r.Meta["model"] != "gemini-test" {
			t.Errorf("%v %s", r.Meta, text)
		}
	}
	long := start(`{"tool":"search","arguments":{"query":"hang"}}`)
	if _, text := callTool(t, s, "cancel-job", fmt.Sprintf(`{"jobId":%q}`, long)); text != "cancelled" {
		t.Error(text)
	}
	if r, text := callTool(t, s, "wait-job", fmt.Sprintf(`{"jobId":%q}`, long)); !r.IsError || !strings.Contains(text, "cancel") {
		t.Errorf("%v %s", r.IsError, text)
	}
	_, text := callTool(t, s, "list-jobs", `{}`)
	var list struct{ Jobs []jobState }
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Jobs) != 2 || list.Jobs[0].State != "cancelled" || list.Jobs[1].State != "done" || list.Jobs[1].About != "what?" {
		t.Errorf("%v %s", err, text)
	}
	for args, words := range map[string][]string{
		`{"tool":"ping","arguments":{}}`:                                       {"must be one of query"},
		`{"tool":"query","arguments":{"prompt":"x","workingDirectory":"/no"}}`: {"workingDirectory " + filepath.FromSlash("/no") + " does not exist"},
		`{"tool":"query","arguments":{}}`:                                      {"prompt is empty"},
		`{"tool":"query","arguments":{"prompt":"x","yolo":true}}`:              {`unknown argument "yolo"`},
		`{"tool":"query","arguments":{"prompt":"x","timeout":0}}`:              {"timeout is 0"},
		`{"tool":"query","arguments":{"prompt":"x","model":"--yolo"}}`:         {"not a valid model name"},
		`{"tool":"change","arguments":{"prompt":1}}`:                           {"prompt must be a string"},
		`{"tool":"search","arguments":{"query":""}}`:                           {"query is empty"},
		`{"tool":"search","arguments":{"query":"x","maxResponseLength":0}}`:    {"maxResponseLength is 0"},
		`{"tool":"structured","arguments":{"prompt":"x"}}`:                     {"the schema is missing"},
	} {
		r, text := callTool(t, s, "start-job", args)
		if !r.IsError {
			t.Errorf("%s starts a job", args)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%v %s", r.IsError, text)
			}
		}
	}
	if r, text := callTool(t, s, "wait-job", `{"jobId":"none"}`); !r.IsError || !strings.Contains(text, "list-jobs") {
		t.Error(text)
	}
}

// A job that already has its answer cannot be cancelled.
func TestCancelledTooLate(t *testing.T) {
	asked := make(chan struct{})
	s := connect(t, newTestBridge(t, script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
		close(asked)
		<-ctx.Done()
		return say("at last") // the answer and the cancellation coincide
	}), nil), "test")
	r, _ := callTool(t, s, "start-job", `{"tool":"query","arguments":{"prompt":"what?"}}`)
	id := fmt.Sprintf(`{"jobId":%q}`, r.Meta["jobId"])
	<-asked
	if _, text := callTool(t, s, "cancel-job", id); !strings.Contains(text, "call wait-job for its result") {
		t.Errorf("cancel-job says %q", text)
	}
	if r, text := callTool(t, s, "wait-job", id); r.IsError || !strings.HasPrefix(text, "at last") {
		t.Errorf("%v %s", r.IsError, text)
	}
}

// All waiters of a job receive its result, even at the same time. They once shared a
// result that was modified.
func TestJobWaiters(t *testing.T) {
	gate := make(chan struct{})
	b := newTestBridge(t, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
		<-gate
		return say("at last")
	}), nil)
	s := connectAs(t, b, "test", "2026-07-28")
	r, _ := callTool(t, s, "start-job", `{"tool":"query","arguments":{"prompt":"what?"}}`)
	id, _ := r.Meta["jobId"].(string)
	const waiters = 8
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "wait-job", Arguments: json.RawMessage(fmt.Sprintf(`{"jobId":%q}`, id))})
			if err != nil || r.IsError || !strings.HasPrefix(r.Content[0].(*mcp.TextContent).Text, "at last") || r.Meta["model"] != "gemini-test" {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
	close(gate)
	wg.Wait()
}

// Jobs wait for a slot until their deadline.
func TestJobsWaitInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			select {
			case <-time.After(40 * time.Second):
				return say("ok")
			case <-ctx.Done():
				return agent.Result{}, context.Cause(ctx)
			}
		}), func(c *Config) { c.MaxConcurrent = 1 })
		for _, job := range []bool{true, false} {
			ctx := t.Context()
			if job {
				ctx = context.WithValue(ctx, jobKey{}, &job)
			}
			var wg sync.WaitGroup
			errs := make([]error, 2)
			for i := range errs {
				wg.Go(func() { _, errs[i] = b.Ask(ctx, QueryInput{Prompt: "x"}, nil) })
			}
			wg.Wait()
			if failed := errs[0] != nil || errs[1] != nil; failed == job {
				t.Errorf("job %v: %v", job, errs)
			}
		}
	})
}
