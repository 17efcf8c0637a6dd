package bridge

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
)

// TestUsage checks that every call is recorded once, with what it used and how it
// ended.
func TestUsage(t *testing.T) {
	tokens := agent.Tokens{Input: 100, Output: 10, Cached: 50, Total: 110}
	answer := agent.Result{Answer: "a", Model: "pro", Tokens: tokens}
	answers := func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) { return answer, nil }
	fails := func(kind agent.Kind) script {
		return func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			return agent.Result{Runner: agent.Warmed}, &agent.Error{Kind: kind}
		}
	}
	unreached := func(err error) script {
		return func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			return agent.Result{}, err
		}
	}
	waits := func(partial string) script {
		return func(ctx context.Context, _ agent.Request, emit func(agent.Event)) (agent.Result, error) {
			emit(agent.Started{})
			<-ctx.Done()
			return agent.Result{Answer: partial}, context.Cause(ctx)
		}
	}
	query := func(model string) func(context.Context, *Bridge) error {
		return func(ctx context.Context, b *Bridge) error {
			_, err := b.Ask(ctx, QueryInput{Prompt: "p", Common: Common{Model: model}}, nil)
			return err
		}
	}
	cancelled := func(cause error) func(context.Context, *Bridge) error {
		return func(ctx context.Context, b *Bridge) error {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Minute, func() { cancel(cause) })
			return query("pro")(ctx, b)
		}
	}
	for _, tt := range []struct {
		name   string
		runner script
		call   func(context.Context, *Bridge) error
		want   agent.Usage // of the call, without times
		took   time.Duration
	}{
		{"answer", answers, query("auto"), agent.Usage{Requested: "auto", Model: "pro", Tokens: tokens}, 0},
		{"default model", answers, query(""), agent.Usage{Model: "pro", Tokens: tokens}, 0},
		{"search", answers, func(ctx context.Context, b *Bridge) error {
			_, err := b.Ask(ctx, SearchInput{Query: "q"}, nil)
			return err
		}, agent.Usage{Model: "pro", Tokens: tokens}, 0},
		{"invalid JSON, twice", answers, func(ctx context.Context, b *Bridge) error {
			_, err := b.Ask(ctx, StructuredInput{Prompt: "p", Schema: Schema("{}")}, nil)
			return err
		}, agent.Usage{Model: "pro", Tokens: agent.Tokens{Input: 200, Output: 20, Cached: 100, Total: 220}, Error: usageOther}, 0},
		{"missing file", answers, func(ctx context.Context, b *Bridge) error {
			in := QueryInput{Prompt: "p", Files: []string{"no such file"}}
			in.RequireFiles = true
			_, err := b.Ask(ctx, in, nil)
			return err
		}, agent.Usage{Error: usageOther, NotAsked: true}, 0},
		{"not installed", unreached(&agent.Error{Kind: agent.NotInstalled}), query("pro"),
			agent.Usage{Requested: "pro", Error: "not installed", NotAsked: true}, 0},
		{"too old, after the start", fails(agent.TooOld), query(""), agent.Usage{Error: "too old", NotAsked: true}, 0},
		{"a full queue", unreached(errors.New("full")), query(""), agent.Usage{Error: usageOther, NotAsked: true}, 0},
		{"no process before the deadline", func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		}, query("pro"), agent.Usage{Requested: "pro", Error: usageTimeout, NotAsked: true}, DefaultTimeout},
		{"cancelled in the queue", unreached(agent.ErrClosed), query(""), agent.Usage{Error: usageCancelled, NotAsked: true}, 0},
		{"fallback", func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
			if r.Model == "pro" {
				return agent.Result{}, &agent.Error{Kind: agent.QuotaDay}
			}
			return agent.Result{Answer: "a", Model: r.Model, Tokens: tokens}, nil
		}, query("pro"), agent.Usage{Requested: "pro", Model: "gemini-2.5-flash", Tokens: tokens, Fallback: true}, 0},
		{"no answer from the fallback either", fails(agent.Capacity), query("pro"),
			agent.Usage{Requested: "pro", Model: "gemini-2.5-flash", Fallback: true, Error: "capacity"}, 0},
		{"failure", fails(agent.Auth), query("pro"), agent.Usage{Requested: "pro", Model: "pro", Error: "auth"}, 0},
		{"timeout", waits(""), query("pro"), agent.Usage{Requested: "pro", Model: "pro", Error: usageTimeout}, DefaultTimeout},
		{"timeout with a partial answer", waits("half"), query("pro"),
			agent.Usage{Requested: "pro", Model: "pro", Error: usageTimeout}, DefaultTimeout},
		{"cancelled", waits(""), cancelled(nil), agent.Usage{Requested: "pro", Model: "pro", Error: usageCancelled}, time.Minute},
		{"answered and cancelled", func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			<-ctx.Done()
			return answer, nil
		}, cancelled(nil), agent.Usage{Requested: "pro", Model: "pro", Tokens: tokens}, time.Minute},
		{"cancelled for a reason", waits(""), cancelled(errors.New("a signal")), agent.Usage{Requested: "pro", Model: "pro", Error: usageCancelled}, time.Minute},
		{"closed", waits(""), func(ctx context.Context, b *Bridge) error {
			time.AfterFunc(time.Minute, func() { b.Close() })
			return query("pro")(ctx, b)
		}, agent.Usage{Requested: "pro", Model: "pro", Error: usageCancelled}, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var got []agent.Usage
				b := newTestBridge(t, tt.runner, func(c *Config) {
					c.Record = func(u agent.Usage) {
						mu.Lock()
						defer mu.Unlock()
						got = append(got, u)
					}
				})
				start := time.Now()
				err := tt.call(t.Context(), b)
				var rejected *Failure
				if tt.want.Error != "" && tt.want.Error != usageOther && err != nil && !errors.As(err, &rejected) {
					t.Errorf("the error is %v, want a Failure", err)
				}
				b.Close()
				mu.Lock()
				defer mu.Unlock()
				if len(got) != 1 {
					t.Fatalf("recorded %d calls, want 1", len(got))
				}
				want := tt.want
				want.Start, want.Duration, want.Agent, want.Provider = start, tt.took, "gemini", "gcp.gen_ai"
				if got[0] != want {
					t.Errorf("recorded %+v\nwant %+v", got[0], want)
				}
			})
		})
	}
}

// TestUsageOfQueue checks that the time in the queue is known.
func TestUsageOfQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := make(chan agent.Usage, 2)
		b := newTestBridge(t, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			time.Sleep(10 * time.Second)
			return say("a")
		}), func(c *Config) {
			c.MaxConcurrent = 1
			c.Record = func(u agent.Usage) { recorded <- u }
		})
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if _, err := b.Ask(t.Context(), QueryInput{Prompt: "p"}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		first, second := <-recorded, <-recorded
		if first.Duration != 10*time.Second || first.Queued != 0 || second.Duration != 20*time.Second || second.Queued != 10*time.Second {
			t.Errorf("recorded %+v and %+v", first, second)
		}
	})
}
