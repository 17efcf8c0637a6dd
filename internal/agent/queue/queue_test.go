package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var row = &agent.Explainer{
	VarPrefix: "TEST_",
	Account:   func(env agent.Env, _ string) string { return env.Get("KEY") },
	ResetAfter: func(message string) time.Duration {
		d, _ := time.ParseDuration(message)
		return d
	},
}

// A script is a runner with scripted answers.
type script func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error)

func (s script) Attempt(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	defer req.Released()
	if err := req.Pace(ctx); err != nil {
		return agent.Result{}, err
	}
	return s(ctx, req, emit)
}

func (script) Check(context.Context, agent.Source) (agent.Program, error) {
	return agent.Program{}, nil
}
func (script) Ahead(agent.Source, string) {}
func (script) Forget(string)              {}
func (script) Workers() []agent.Worker    { return nil }
func (script) Close() error               { return nil }

func ignore(agent.Event) {}

// A workload counts the requests that run at once, and lists their prompts in the order
// of their start.
type workload struct {
	mu            sync.Mutex
	running, most int
	order         []string
}

// run is a runner whose answers take a second.
func (w *workload) run(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	w.mu.Lock()
	w.running++
	w.most = max(w.most, w.running)
	w.order = append(w.order, req.Prompt)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.running--
		w.mu.Unlock()
	}()
	select {
	case <-time.After(time.Second):
		return agent.Result{Answer: "ok"}, nil
	case <-ctx.Done():
		return agent.Result{}, context.Cause(ctx)
	}
}

// A question is a request of a caller.
type question struct {
	agent.Request
	caller string
}

func (q question) run(ctx context.Context, r *Runner, emit func(agent.Event)) (agent.Result, error) {
	return r.RunFor(ctx, q.caller, q.Request, emit)
}

func questionOf(prompt, caller string, limit int) question {
	return question{agent.Request{Prompt: prompt, Queue: agent.Queue{Limit: limit, Timeout: 30 * time.Second}}, caller}
}

// ask sends a request and waits until it has its place in the queue.
func ask(t *testing.T, r *Runner, wg *sync.WaitGroup, q question, emit func(agent.Event)) {
	wg.Go(func() {
		if _, err := q.run(t.Context(), r, emit); err != nil {
			t.Errorf("%s: %v", q.Prompt, err)
		}
	})
	synctest.Wait()
}

// wantEmpty checks that no request has a turn or waits for one.
func wantEmpty(t *testing.T, r *Runner) {
	t.Helper()
	synctest.Wait()
	for _, l := range r.Loads() {
		if l.Running+l.Waiting > 0 {
			t.Errorf("left: %+v", l)
		}
	}
}

// Callers that wait take turns, so one with many requests does not delay the others.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workload
		r := New(row, script(w.run))
		var wg sync.WaitGroup
		for _, prompt := range []string{"a0", "a1", "a2", "a3", "a4", "b0", "c0", "b1"} {
			ask(t, r, &wg, questionOf(prompt, prompt[:1], 1), ignore)
		}
		wg.Wait()
		if got := strings.Join(w.order, " "); got != "a0 a1 b0 c0 a2 b1 a3 a4" || w.most != 1 {
			t.Errorf("%s, %d at once", got, w.most)
		}
		wantEmpty(t, r)
	})
}

// A request learns its position in the queue. Another caller may come before it.
func TestPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workload
		r := New(row, script(w.run))
		var wg sync.WaitGroup
		var mu sync.Mutex
		positions := map[string][]int{}
		for _, name := range []string{"a0", "a1", "a2", "b0", "b1"} {
			ask(t, r, &wg, questionOf(name, name[:1], 1), func(ev agent.Event) {
				mu.Lock()
				defer mu.Unlock()
				if q, ok := ev.(agent.Queued); ok {
					positions[name] = append(positions[name], q.Position)
				}
			})
		}
		wg.Wait()
		want := "map[a0:[0] a1:[0 1] a2:[0 2 3 2 1] b0:[0 2 1] b1:[0 4 3 2 1]]"
		if got := fmt.Sprint(positions); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// Each account has its own limit. Requests with different limits share the lowest one.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		limits []int
		keys   []string
		most   int
	}{
		{[]int{3, 3, 3, 3, 3}, []string{"k"}, 3},
		{[]int{2, 64, 64, 64}, []string{"k"}, 2},
		{[]int{0, 0, 0, 0}, []string{"k"}, 4},
		{[]int{1, 1, 1, 1}, []string{"k", "l"}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var w workload
			r := New(row, script(w.run))
			var wg sync.WaitGroup
			for i, limit := range tt.limits {
				req := questionOf(fmt.Sprint(i), fmt.Sprint(i), limit)
				req.Source.Env = agent.Env{"KEY=" + tt.keys[i%len(tt.keys)]}
				ask(t, r, &wg, req, ignore)
			}
			wg.Wait()
			if w.most != tt.most {
				t.Errorf("limits %v, keys %v: %d run at once, want %d", tt.limits, tt.keys, w.most, tt.most)
			}
			wantEmpty(t, r)
		})
	}
}

// A request that leaves the queue without a turn, does not use one.
func TestLeavingUsesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(row, script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			<-ctx.Done()
			return agent.Result{}, context.Cause(ctx)
		}))
		first, end := context.WithCancel(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		var released atomic.Int32
		var wg sync.WaitGroup
		run := func(ctx context.Context, check func(agent.Result, error)) {
			req := questionOf("x", "a", 1)
			req.Released = func() { released.Add(1) }
			wg.Go(func() { check(req.run(ctx, r, ignore)) })
			synctest.Wait()
		}
		run(first, func(agent.Result, error) {})
		run(ctx, func(_ agent.Result, err error) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled one gets %v", err)
			}
		})
		run(t.Context(), func(result agent.Result, err error) {
			systest.WantError(t, err, "no free slot within 30s", "1 calls are running", "raise TEST_MAX_CONCURRENT (now 1)")
			if result.Queued != 30*time.Second {
				t.Errorf("queued for %s", result.Queued)
			}
		})
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		if l := r.Loads(); len(l) != 1 || l[0].Running != 1 || l[0].Waiting != 0 {
			t.Errorf("%+v", l)
		}
		end()
		wg.Wait()
		wantEmpty(t, r)
		if n := released.Load(); n != 3 {
			t.Errorf("%d of 3 requests were released", n)
		}
	})
}

// The end of the runner ends the requests that wait, too.
func TestCloseEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workload
		r := New(row, script(w.run))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := questionOf("x", "a", 1).run(t.Context(), r, ignore); !errors.Is(err, agent.ErrClosed) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		r.Close()
		wg.Wait()
		wantEmpty(t, r)
	})
}

// Starts are spaced out over all callers.
func TestStartsAreSpacedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		r := New(row, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Since(begin))
			return agent.Result{Answer: "ok"}, nil
		}))
		var wg sync.WaitGroup
		for i := range 4 {
			req := questionOf("x", fmt.Sprint(i), 4)
			req.Queue.StartInterval = 5 * time.Second
			ask(t, r, &wg, req, ignore)
		}
		wg.Wait()
		if fmt.Sprint(starts) != "[0s 5s 10s 15s]" {
			t.Errorf("starts at %v", starts)
		}
	})
}

// models is a runner that refuses some models and lists those that were asked.
type models struct {
	refused map[string]*agent.Error
	asked   []string
}

func (m *models) run(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
	m.asked = append(m.asked, req.Model)
	if err := m.refused[req.Model]; err != nil {
		return agent.Result{}, err
	}
	return agent.Result{Answer: "from " + req.Model, Model: req.Model}, nil
}

// take returns the models that were asked since the last call.
func (m *models) take() string {
	asked := strings.Join(m.asked, " ")
	m.asked = nil
	return asked
}

// What one request learns about a quota applies to the others, until the time that the
// service stated.
func TestUsedUpQuotaIsRemembered(t *testing.T) {
	for _, tt := range []struct {
		kind    agent.Kind
		message string
		until   time.Duration // 0 if it is not remembered
	}{
		{agent.QuotaDay, "2h0m0s", 2 * time.Hour},
		{agent.QuotaDay, "unknown", quotaInterval},
		{agent.QuotaMinute, "34s", 34 * time.Second},
		{agent.QuotaMinute, "", minuteInterval},
		{agent.Capacity, "", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &models{refused: map[string]*agent.Error{"pro": {Kind: tt.kind, Message: tt.message}}}
			r := New(row, script(m.run))
			ask := func(key, want string) {
				t.Helper()
				req := questionOf("x", "a", 3)
				req.Source.Env, req.Model, req.Fallback = agent.Env{"KEY=" + key}, "pro", "flash"
				result, err := req.run(t.Context(), r, ignore)
				if got := m.take(); err != nil || got != want {
					t.Errorf("%s, %q: asked %q, want %q, %v", tt.kind, tt.message, got, want, err)
				}
				switch f := result.Fallback; {
				case !strings.HasSuffix(want, "flash"):
					if f != nil {
						t.Errorf("fallback %+v", f)
					}
				case f == nil || f.Why != string(tt.kind) || !result.FromFallback || f.From != "pro":
					t.Errorf("fallback %+v", f)
				}
			}
			ask("k", "pro flash")
			if tt.until == 0 {
				ask("k", "pro flash")
				return
			}
			ask("k", "flash")
			if l := r.Loads(); len(l) != 1 || len(l[0].UsedUp) != 1 || l[0].UsedUp[0].Model != "pro" {
				t.Errorf("%+v", l)
			}
			ask("other", "pro flash")
			time.Sleep(tt.until - time.Second)
			ask("k", "flash")
			time.Sleep(time.Second)
			delete(m.refused, "pro")
			ask("k", "pro")
			ask("k", "pro")
		})
	}
}

// Without another model, or if its quota is used up too, the model is asked.
func TestUsedUpQuotaWithoutFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := &agent.Error{Kind: agent.QuotaDay, Message: "2h"}
		m := &models{refused: map[string]*agent.Error{"pro": day, "flash": day}}
		r := New(row, script(m.run))
		for _, tt := range []struct{ fallback, want string }{
			{"", "pro"}, {"flash", "flash"}, {"flash", "pro flash"}, {"pro", "pro"}, {"lite", "lite"},
		} {
			req := questionOf("x", "a", 3)
			req.Model, req.Fallback = "pro", tt.fallback
			req.run(t.Context(), r, ignore)
			if got := m.take(); got != tt.want {
				t.Errorf("fallback %q: asked %q, want %q", tt.fallback, got, tt.want)
			}
		}
	})
}

// An agent that would wait long before it asks an overloaded model again is stopped, and
// the fallback model is asked in the same turn.
func TestLongRetriesFallBack(t *testing.T) {
	for waits, want := range map[string]time.Duration{"1s 2s 3s": 6 * time.Second, "9s": 0, "5s 10s 20s": 5 * time.Second, "3h0m0s": 0} {
		synctest.Test(t, func(t *testing.T) {
			r := New(row, script(func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
				if req.Model == "flash" {
					return agent.Result{Answer: "ok", Model: "flash"}, nil
				}
				for wait := range strings.FieldsSeq(waits) {
					d, _ := time.ParseDuration(wait)
					emit(agent.Retry{Wait: d, Kind: agent.Capacity})
					select {
					case <-time.After(d):
					case <-ctx.Done():
						return agent.Result{Narration: "so far"}, context.Cause(ctx)
					}
				}
				return agent.Result{Answer: "at last"}, nil
			}))
			var events []string
			req := questionOf("x", "a", 1)
			req.Fallback = "flash"
			begin := time.Now()
			result, err := req.run(t.Context(), r, func(ev agent.Event) { events = append(events, fmt.Sprintf("%T", ev)) })
			if took := time.Since(begin); err != nil || took != want {
				t.Errorf("waits of %s: %+v, %v, after %s", waits, result, err, took)
			}
			if waits == "1s 2s 3s" {
				if result.Answer != "at last" || result.Fallback != nil {
					t.Errorf("waits of %s: %+v", waits, result)
				}
			} else if result.Answer != "ok" || result.Fallback == nil || result.Fallback.From != "the default model" || !slices.Contains(events, "agent.FellBack") {
				t.Errorf("waits of %s: %+v, events %v", waits, result, events)
			}
			wantEmpty(t, r)
		})
	}
}
