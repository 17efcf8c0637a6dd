package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/agent/queue"
	"pollux/internal/bridge/change"
	"pollux/internal/config"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	fakecli.Main()
	systest.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// attempts lets a runner answer each attempt.
type attempts struct{ agent.Runner }

func (a attempts) Attempt(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	return a.Run(ctx, req, emit)
}

func newTestBridge(t *testing.T, r agent.Runner, change func(*Config)) *Bridge {
	t.Helper()
	cfg := Configure(agents.Default(), config.Defaults())
	cfg.StartInterval, cfg.StartJitter = 0, 0
	if change != nil {
		change(&cfg)
	}
	b, err := New(queue.New(&cfg.Agent.Explainer, attempts{r}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func ms(d time.Duration) *Integer {
	w := Integer(d.Milliseconds())
	return &w
}

func TestQueryInput(t *testing.T) {
	b := newTestBridge(t, answering("ok"), nil)
	none, big := Integer(0), Integer(MaxWords+1)
	over := Integer(MaxTimeout.Milliseconds() + 1)
	many := make([]string, maxFiles+1)
	for _, test := range []struct {
		name  string
		in    QueryInput
		words []string
	}{
		{"empty", QueryInput{Prompt: " \n"}, []string{"prompt is empty", "write a question"}},
		{"long", QueryInput{Prompt: strings.Repeat("x", MaxPrompt+1)}, []string{"over the limit of 2000000", "send less"}},
		{"no timeout", QueryInput{Prompt: "x", Common: Common{Timeout: &none}}, []string{"timeout is 0", "from 1 to 1800000"}},
		{"long timeout", QueryInput{Prompt: "x", Common: Common{Timeout: &over}}, []string{"timeout is 1800001", "from 1 to 1800000"}},
		{"flag for a model", QueryInput{Prompt: "x", Common: Common{Model: "--yolo"}}, []string{"--yolo", "not a valid model name"}},
		{"many files", QueryInput{Prompt: "x", Files: many}, []string{"21 files exceed the limit of 20"}},
		{"no words", QueryInput{Prompt: "x", MaxResponseLength: &none}, []string{"maxResponseLength is 0", "from 1"}},
		{"many words", QueryInput{Prompt: "x", MaxResponseLength: &big}, []string{"to 100000"}},
		{"no directory", QueryInput{Prompt: "x", Common: Common{WorkingDirectory: "/no/such"}}, []string{"workingDirectory /no/such does not exist"}},
		{"a file", QueryInput{Prompt: "x", Common: Common{WorkingDirectory: "bridge_test.go"}}, []string{"is not a directory"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := b.Ask(t.Context(), test.in, nil)
			systest.WantError(t, err, test.words...)
		})
	}
}

func TestSettings(t *testing.T) {
	get := func(env map[string]string) Config {
		v := config.Load(func(name string) string { return env[name] })
		if err := v.ErrFor(func(config.Setting) bool { return true }); err != nil {
			t.Error(err)
		}
		return Configure(agents.Default(), v)
	}
	systest.SetHome(t, t.TempDir())
	t.Chdir(t.TempDir())
	cfg := get(map[string]string{"GEMINI_MAX_CONCURRENT": "  ", "GEMINI_DEFAULT_MODEL": " gemini-x ", "GEMINI_FALLBACK_MODEL": "NONE"})
	if cfg.MaxConcurrent != 3 || cfg.DefaultModel != "gemini-x" || cfg.FallbackModel != "" ||
		cfg.StartInterval != 5*time.Second || cfg.StartJitter != 200*time.Millisecond || cfg.Source.Command != "gemini" || cfg.Source.Env != nil ||
		cfg.Runner.IdleTimeout != 5*time.Minute || cfg.Kind != agent.Warmed || cfg.AheadDir != "" || cfg.NoPool || cfg.Runner.Wall.Mode != agent.WallAuto ||
		cfg.Runner.Warm.Processes != 3 || cfg.Runner.Warm.IdleTimeout != 10*time.Minute || cfg.Runner.Warm.Memory != 1<<30 {
		t.Errorf("got %+v", cfg)
	}
	if cfg = get(nil); cfg.FallbackModel != "gemini-2.5-flash" {
		t.Errorf("the fallback is %q", cfg.FallbackModel)
	}
	dir, err := workingDirectory("")
	if err != nil {
		t.Fatal(err)
	}
	cfg = get(map[string]string{"GEMINI_WARM_AHEAD": "yes", "POLLUX_POOL": "off", "GEMINI_RUNNER": "SPAWN"})
	if cfg.AheadDir != dir || !cfg.NoPool || cfg.Kind != agent.Spawned {
		t.Errorf("got %+v", cfg)
	}
}

// The table of settings and the agent agree on the names of variables. The bridge's own
// settings do not matter to the agent. If it received them, clients with different settings
// would not share its processes.
func TestSettingsStayInTheBridge(t *testing.T) {
	var env agent.Env
	row := agents.Default()
	for _, s := range config.Settings {
		if s.Variable == "" {
			continue
		}
		env = append(env, s.Variable+"=1")
		// These are the same for all agents.
		if s.Table() == "bridge" && !strings.HasPrefix(s.Variable, row.VarPrefix) && s.Key != "bridge.agent" && s.Key != "bridge.wall" {
			t.Errorf("%s has not the agent's prefix", s.Variable)
		}
	}
	if got := row.Environment(env); len(env) < 10 || len(got) > 0 {
		t.Errorf("of %d settings, the agent receives %q", len(env), got)
	}
	cfg := Configure(row, config.Defaults())
	if s, _ := config.Find("bridge.command"); s.Variable != row.CommandVar || cfg.Source.Command != row.Command || cfg.FallbackModel != row.FallbackModel {
		t.Errorf("got %+v for %+v", cfg, row)
	}
	for variable := range cfg.PoolSettings() {
		if !slices.ContainsFunc(config.Settings, func(s config.Setting) bool { return s.Variable == variable }) {
			t.Errorf("the pool reports %s, which is no setting", variable)
		}
	}
}

// The deadline ends a call that waits in the queue.
func TestDeadlineCoversTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, hanging, func(c *Config) { c.MaxConcurrent = 1 })
		var wg sync.WaitGroup
		wg.Go(func() { b.Ask(t.Context(), QueryInput{Prompt: "x"}, nil) })
		synctest.Wait()
		begin := time.Now()
		_, err := b.Ask(t.Context(), QueryInput{Prompt: "x", Common: Common{Timeout: ms(5 * time.Second)}}, nil)
		systest.WantError(t, err, "timed out after 5s", "5s of that in the queue")
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		b.Close()
		wg.Wait()
	})
}

// The deadline covers the queue, the interval between starts, and the run.
func TestDeadlineCoversAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int32
		b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			started.Add(1)
			return hang(ctx)
		}), func(c *Config) { c.MaxConcurrent, c.StartInterval = 2, 7*time.Second })
		begin := time.Now()
		var wg sync.WaitGroup
		for range 4 { // one runs, one would start after 7 s, and two are queued
			wg.Go(func() {
				a, err := b.Ask(t.Context(), QueryInput{Prompt: "x", Common: Common{Timeout: ms(5 * time.Second)}}, nil)
				systest.WantError(t, err, "timed out after 5s without an answer", "raise timeout")
				if took := time.Since(begin); took != 5*time.Second || a.Meta.DurationMs != 5000 {
					t.Errorf("took %s, says %d ms", took, a.Meta.DurationMs)
				}
			})
		}
		wg.Wait()
		if running, waiting := b.running.Load(), b.waiting.Load(); running+waiting != 0 || started.Load() != 1 {
			t.Errorf("%d run, %d wait; %d were started", running, waiting, started.Load())
		}
	})
}

// A timeout before the first word is an error. Later, the result is a partial
// answer.
func TestTimeout(t *testing.T) {
	for text, narration := range map[string]string{"": "", "as far as": "", "narrated": "narrated"} {
		synctest.Test(t, func(t *testing.T) {
			b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, emit func(agent.Event)) (agent.Result, error) {
				emit(agent.Started{})
				<-ctx.Done()
				r := agent.Result{Answer: text, Narration: narration}
				if narration != "" {
					r.Answer = ""
				}
				return r, context.Cause(ctx)
			}), nil)
			a, err := b.Ask(t.Context(), QueryInput{Prompt: "x"}, nil)
			if text == "" {
				systest.WantError(t, err, "timed out after 120s without an answer")
				return
			}
			if err != nil || a.Text != text || a.Cut != "timed out after 120s" || !a.Meta.Partial {
				t.Errorf("got %q, %v, %+v", a.Text, err, a.Meta)
			}
		})
	}
}

// An agent may wait longer than the question may take: for hours, if a quota is used up.
func TestTimeoutAfterRefusal(t *testing.T) {
	refusal := agent.Retry{Wait: 5 * time.Second, Kind: agent.QuotaMinute, Message: "limit reached"}
	for _, test := range []struct {
		events []agent.Event
		want   string
	}{
		{[]agent.Event{refusal}, "timed out after 120s without an answer, because the model's quota per minute is used up (limit reached): wait a minute, or name another model"},
		{[]agent.Event{refusal, agent.Text{Text: "as far as"}}, "timed out after 120s without an answer: ask for less"},
		{[]agent.Event{refusal, agent.ToolUse{Name: "read"}}, "timed out after 120s without an answer: ask for less"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, emit func(agent.Event)) (agent.Result, error) {
				for _, ev := range test.events {
					emit(ev)
				}
				return hang(ctx)
			}), nil)
			_, err := b.Ask(t.Context(), QueryInput{Prompt: "x"}, nil)
			systest.WantError(t, err, test.want)
		})
	}
}

func TestFallback(t *testing.T) {
	over := &agent.Error{Kind: agent.QuotaDay, Message: "used up"}
	for _, test := range []struct {
		name            string
		model, fallback string
		model1          string // the first model that answered, according to the CLI
		timeout         time.Duration
		fails           error
		second          error
		asked           string
		words           []string // words in the error
	}{
		{name: "quota", model: "pro", fallback: "flash", fails: over, asked: "pro flash"},
		{name: "capacity", model: "pro", fallback: "flash", fails: &agent.Error{Kind: agent.Capacity}, asked: "pro flash"},
		{name: "default model", fallback: "flash", fails: over, asked: " flash"},
		{name: "both", model: "pro", fallback: "flash", fails: over, second: over, asked: "pro flash", words: []string{"quota for today"}},
		{name: "none", model: "pro", fails: over, asked: "pro", words: []string{"quota for today", "used up"}},
		{name: "the same", model: "flash", fallback: "flash", fails: over, asked: "flash", words: []string{"quota"}},
		{name: "the default was the fallback", fallback: "flash", fails: over, model1: "flash", asked: "", words: []string{"quota"}},
		{name: "too late", model: "pro", fallback: "flash", timeout: 9 * time.Second, fails: over, asked: "pro", words: []string{"quota"}},
		{name: "other errors", model: "pro", fallback: "flash", fails: &agent.Error{Kind: agent.Auth}, asked: "pro", words: []string{"signed in"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
					asked = append(asked, r.Model)
					if len(asked) == 1 {
						return agent.Result{Model: test.model1}, test.fails
					}
					if test.second != nil {
						return agent.Result{}, test.second
					}
					return agent.Result{Answer: "ok", Model: "really-" + r.Model}, nil
				}), func(c *Config) { c.FallbackModel = test.fallback })
				in := QueryInput{Prompt: "x", Common: Common{Model: test.model}}
				if test.timeout != 0 {
					in.Timeout = ms(test.timeout)
				}
				a, err := b.Ask(t.Context(), in, nil)
				if got := strings.Join(asked, " "); got != test.asked {
					t.Errorf("asked %q, want %q", got, test.asked)
				}
				if test.words != nil {
					systest.WantError(t, err, test.words...)
					return
				}
				if err != nil || a.Meta.Model != "really-flash" || a.Meta.Fallback == nil || a.Meta.Fallback.To != "flash" || len(a.Notes) != 1 {
					t.Errorf("got %+v, %v", a, err)
				}
			})
		})
	}
}

// The note of an overloaded call said "answered by flash" although no model had
// answered. Notes must be true.
func TestNotesSayWhatHappened(t *testing.T) {
	over := &agent.Error{Kind: agent.Capacity}
	for _, test := range []struct {
		name          string
		first, second agent.Result
		fails         error // the error of the second attempt
		note, model   string
	}{
		{"answered", agent.Result{}, agent.Result{Answer: "ok", Model: "flash"}, nil, "answered by flash, because pro failed (capacity)", "flash"},
		{"both overloaded", agent.Result{}, agent.Result{}, over, "also tried flash, because pro failed (capacity)", "flash"},
		{"timed out, words of the second", agent.Result{}, agent.Result{Answer: "half", Model: "flash"}, errTimeout, "answered by flash, because pro failed (capacity)", "flash"},
		{"timed out, words of the first", agent.Result{Answer: "half", Model: "pro"}, agent.Result{}, errTimeout, "also tried flash, because pro failed (capacity)", "pro"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
					if r.Model == "pro" {
						return test.first, over
					}
					return test.second, test.fails
				}), func(c *Config) { c.FallbackModel = "flash" })
				a, _ := b.Ask(t.Context(), QueryInput{Prompt: "x", Common: Common{Model: "pro"}}, nil)
				if len(a.Notes) != 1 || a.Notes[0] != test.note || a.Meta.Model != test.model {
					t.Errorf("notes %q, model %q; want %q, %q", a.Notes, a.Meta.Model, test.note, test.model)
				}
			})
		})
	}
}

// The text of the first model is kept if the second model returns none.
func TestFallbackKeepsWhatThereWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, script(func(ctx context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
			if r.Model == "pro" {
				return agent.Result{Answer: "half of it"}, &agent.Error{Kind: agent.QuotaDay}
			}
			return hang(ctx)
		}), nil)
		a, err := b.Ask(t.Context(), QueryInput{Prompt: "x", Common: Common{Model: "pro"}}, nil)
		if err != nil || !strings.HasSuffix(a.Text, "half of it") || !a.Meta.Partial {
			t.Errorf("%q, %v", a.Text, err)
		}
	})
}

// The error of a retry that takes too long names the agent's own remedy.
func TestGivenUpRetryHasARemedy(t *testing.T) {
	b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, emit func(agent.Event)) (agent.Result, error) {
		emit(agent.Retry{Attempt: 1, Wait: time.Hour, Kind: agent.Auth, Message: "no access"})
		return hang(ctx)
	}), nil)
	_, err := b.Ask(t.Context(), QueryInput{Prompt: "x"}, nil)
	remedy := agents.Default().Remedies[agent.Auth]
	systest.WantError(t, err, remedy.What, "no access", remedy.Next)
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		begin := time.Now()
		b := newTestBridge(t, script(func(_ context.Context, _ agent.Request, emit func(agent.Event)) (agent.Result, error) {
			emit(agent.Started{})
			time.Sleep(20 * time.Second)
			emit(agent.ToolUse{Name: "read_file", Summary: "a\x1b[31m.go"})
			time.Sleep(1500 * time.Microsecond) // so that no words coincide with a tick
			for i := range 3000 {
				emit(agent.Text{Text: fmt.Sprintf("word%d ", i)})
				time.Sleep(time.Millisecond)
			}
			return say("ok")
		}), nil)
		if _, err := b.Ask(t.Context(), QueryInput{Prompt: "x"}, func(m string) {
			got = append(got, fmt.Sprintf("%s %s", time.Since(begin).Round(100*time.Millisecond), m))
		}); err != nil {
			t.Fatal(err)
		}
		want := []string{"0s queued", "0s starting Gemini CLI", "0s Gemini CLI has started", "8s Gemini CLI has started (8s)", "16s Gemini CLI has started (16s)", "20s reading a[31m.go"}
		for i, w := range want {
			if i >= len(got) || got[i] != w {
				t.Fatalf("reports %q, want first %q", got, want)
			}
		}
		// The last words follow once a second.
		if rest := got[len(want):]; len(rest) != 3 || !strings.HasPrefix(rest[0], "21s writing: …") || !strings.HasSuffix(rest[0], " word998") {
			t.Errorf("and then %q", rest)
		}
		for _, g := range got {
			if len([]rune(g)) > progressLength+10 {
				t.Errorf("a report of %d characters", len([]rune(g)))
			}
		}
	})
}

// Only a process that was started for the call has started.
func TestProgressOfAWarmCall(t *testing.T) {
	p := newProgress(agents.Default(), nil)
	defer p.stop()
	for i, want := range []string{"asking Gemini CLI", "starting Gemini CLI", "Gemini CLI has started", "asking Gemini CLI"} {
		p.event([]agent.Event{agent.Started{}, agent.Starting{}, agent.Started{}, agent.Started{}}[i])
		if p.doing != want {
			t.Errorf("the report is %q, want %q", p.doing, want)
		}
	}
}

func TestPingAnswersWhileAllIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, hanging, func(c *Config) { c.MaxConcurrent = 1 })
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { b.Ask(t.Context(), QueryInput{Prompt: "x"}, nil) })
		}
		synctest.Wait()
		text, err := b.Ping(t.Context())
		if err != nil || !strings.Contains(text, "1 running, 1 waiting, at most 1 of each account") || !strings.Contains(text, "enforced") {
			t.Errorf("got %q, %v", text, err)
		}
		b.Close()
		wg.Wait()
	})
}

func TestTemplatesAreFilledLiterally(t *testing.T) {
	b := newTestBridge(t, answering("ok"), nil)
	got := b.templates.fill("structured", map[string]string{"prompt": "$& $1 {{schema}} {{prompt}}", "schema": "{{prompt}}$`"})
	if !strings.HasPrefix(got, "$& $1 {{schema}} {{prompt}}\n") || !strings.HasSuffix(got, "{{prompt}}$`") {
		t.Errorf("got %q", got)
	}
}

func TestTemplatesOfTheUser(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		systest.WriteFile(t, filepath.Join(dir, "search.md"), text)
	}
	write("mine: {{query}}")
	var prompt string
	b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
		prompt = r.Prompt
		return say("ok")
	}), func(c *Config) { c.Templates = dir })
	if _, err := b.Ask(t.Context(), SearchInput{Query: "q"}, nil); err != nil || prompt != "mine: q" {
		t.Errorf("prompt %q, %v", prompt, err)
	}
	if _, err := loadTemplates(filepath.Join(dir, "none"), "GEMINI_PROMPTS_DIR"); err == nil || !strings.Contains(err.Error(), "GEMINI_PROMPTS_DIR") || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a directory that is not there: %v", err)
	}
	write("no place")
	_, err := loadTemplates(dir, "GEMINI_PROMPTS_DIR")
	systest.WantError(t, err, "search.md", "lacks {{query}}")
}

func TestFiles(t *testing.T) {
	dir := systest.Dir(t)
	elsewhere := systest.Dir(t)
	outside := filepath.Join(elsewhere, "out.txt")
	for name, text := range map[string]string{
		"a.txt": "hello", "fence.md": "```\nx\n```\n", "big.txt": strings.Repeat("x", change.MaxFile+1),
		"list.pl": "my @a = \\@b;", "q\"q.png": "x",
		"binary.txt": "a\x00b", "pic.png": "x", "big.png": strings.Repeat("x", maxImage+1), outside: "secret",
	} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if runtime.GOOS == "windows" && strings.Contains(name, `"`) {
			continue // no name contains a quote
		}
		systest.WriteFile(t, name, text)
	}
	links := systest.TryLink(outside, filepath.Join(dir, "link.txt")) == nil
	a, err := attach(dir, []string{"a.txt", filepath.Join(dir, "fence.md"), "pic.png", "big.txt", "binary.txt", "big.png", outside, "link.txt", "../x", "none", ".", "list.pl", "q\"q.png"}, agents.Default())
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n\nThe file a.txt:\n```\nhello\n```\n\nThe file fence.md:\n````\n```\nx\n```\n````\n\nThe file list.pl is not included: read it with your tools."; a.text != want {
		t.Errorf("text %q", a.text)
	}
	if fmt.Sprint(a.images) != "[pic.png]" {
		t.Errorf("images %q", a.images)
	}
	skipped := strings.Join(a.skipped, "\n")
	for _, want := range []string{
		"big.txt: it has 1000001 bytes, over the limit of 1000000", "binary.txt: it is not UTF-8", "big.png: it has 5000001 bytes",
		outside + ": it is outside " + dir, "link.txt: it is outside " + dir, "none: there is no such file", "q.png: its name contains", ".: it is not a regular file",
	} {
		if strings.HasPrefix(want, "q.png") && runtime.GOOS == "windows" || strings.HasPrefix(want, "link.txt") && !links {
			continue
		}
		if !strings.Contains(skipped, want) {
			t.Errorf("no %q in %q", want, skipped)
		}
	}
	// The root directory works like any other.
	top := filepath.VolumeName(outside) + string(filepath.Separator)
	if rel, err := within(top, outside); err != nil || filepath.Join(top, rel) != outside {
		t.Errorf("within / it is %q, %v", rel, err)
	}
}

func TestSplit(t *testing.T) {
	for _, text := range []string{
		"", "short", strings.Repeat("x", 100), strings.Repeat("x", 102), strings.Repeat("ü", 999), strings.Repeat("word ", 500),
		strings.Repeat("a line of text\n", 300), strings.Repeat("a paragraph\nof two lines\n\n", 200), strings.Repeat("世界🌍", 333),
		strings.Repeat("x", 199) + "\n" + "y", "\xff\xfe" + strings.Repeat("\x80", 500),
	} {
		pieces := split(text, 100, 1<<30)
		if strings.Join(pieces, "") != text {
			t.Errorf("%.20q: the pieces are not the text", text)
		}
		for i, p := range pieces {
			if len(p) > 100 || len(pieces) > 1 && len(p) < 20 {
				t.Errorf("%.20q: piece %d of %d has %d bytes", text, i+1, len(pieces), len(p))
			}
			if strings.HasPrefix(text, "世") && !strings.Contains("世界🌍", string([]rune(p)[0])) {
				t.Errorf("piece %d starts within a character", i+1)
			}
		}
	}
}

func TestSplitByLines(t *testing.T) {
	text := strings.Repeat("x\n", 600)
	pieces := split(text, 8000, 240)
	if strings.Join(pieces, "") != text || len(pieces) != 3 {
		t.Errorf("%d pieces", len(pieces))
	}
	for _, p := range pieces {
		if n := strings.Count(p, "\n"); n > 240 {
			t.Errorf("a piece of %d lines", n)
		}
	}
}

func TestChunkCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChunkCache()
		first := c.put([]string{"a", "b"})
		if text, n, err := c.get(first, 2); text != "b" || n != 2 || err != nil {
			t.Errorf("got %q, %d, %v", text, n, err)
		}
		_, _, err := c.get(first, 3)
		systest.WantError(t, err, "has 2 chunks", "from 1 to 2")
		_, _, err = c.get("guess", 1)
		systest.WantError(t, err, "no answer with this cacheKey", "ask again")
		for range cached.items {
			time.Sleep(time.Second)
			c.get(first, 1) // so that it is not the one that is dropped
			c.put([]string{"x"})
		}
		if _, _, err := c.get(first, 1); err != nil || c.len() != cached.items {
			t.Errorf("%v, %d entries", err, c.len())
		}
		time.Sleep(time.Second)
		huge := c.put([]string{strings.Repeat("x", cached.bytes+1)})
		if _, _, err := c.get(huge, 1); err != nil || c.len() != 1 {
			t.Errorf("%v, %d entries", err, c.len())
		}
		time.Sleep(cached.after + time.Second)
		if _, _, err = c.get(huge, 1); err == nil || c.len() != 0 {
			t.Errorf("an old one: %v, %d entries", err, c.len())
		}
	})
}

func TestStructured(t *testing.T) {
	object := `{"type":"object","properties":{"when":{"type":"string","format":"date"}},"required":["when"]}`
	good := `{"when": "2026-11-21"}`
	for _, test := range []struct {
		name, schema string
		answers      []string
		want         string
		words        []string
	}{
		{"plain", object, []string{good}, `{"when":"2026-11-21"}`, nil},
		{"fenced", object, []string{"Here you are:\n```json\n" + good + "\n```\nDone."}, `{"when":"2026-11-21"}`, nil},
		{"in words", object, []string{"It is " + good + "."}, `{"when":"2026-11-21"}`, nil},
		{"a list of objects in words", `{"type":"array"}`, []string{`So: [1, {"a": 2}, 3]!`}, `[1,{"a":2},3]`, nil},
		{"a reference before", object, []string{"As in [1], and {2}: " + good, "none"}, "", []string{"no JSON"}},
		{"a list before", object, []string{"As in [1]: " + good}, `{"when":"2026-11-21"}`, nil},
		{"a name with @", `{"required":["@type"]}`, []string{`{"@type":1}`}, `{"@type":1}`, nil},
		{"missing", ``, nil, "", []string{"schema is missing"}},
		{"order and numbers are kept", `true`, []string{`{"z":1.50,"a":12345678901234567890}`}, `{"z":1.50,"a":12345678901234567890}`, nil},
		{"repaired", object, []string{`{"when":"tomorrow"}`, good}, `{"when":"2026-11-21"}`, nil},
		{"format is asserted", object, []string{`{"when":"tomorrow"}`, `{"when":"2026-02-30"}`}, "", []string{"at /when", "not valid date"}},
		{"missing", object, []string{`{}`, `{}`}, "", []string{"at /:", "when"}},
		{"no JSON", object, []string{"I cannot.", "I can not."}, "", []string{"the answer contains no JSON"}},
		{"draft 4", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":1,"exclusiveMinimum":true}`, []string{"1", "2"}, "2", nil},
		{"draft 6", `{"$schema":"http://json-schema.org/draft-06/schema#","exclusiveMinimum":1}`, []string{"1", "2"}, "2", nil},
		{"draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","if":{"const":1},"then":false}`, []string{"1", "2"}, "2", nil},
		{"draft 2019-09", `{"$schema":"https://json-schema.org/draft/2019-09/schema","dependentRequired":{"a":["b"]}}`, []string{`{"a":1}`, `{"a":1,"b":2}`}, `{"a":1,"b":2}`, nil},
		{"draft 2020-12", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"array","prefixItems":[{"type":"integer"}],"items":false}`, []string{"[1,2]", "[1]"}, "[1]", nil},
		{"references within", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}}}`, []string{`"x"`, "1"}, "1", nil},
		{"patterns of ECMA-262", `{"type":"string","pattern":"^(?!x)"}`, []string{`"xa"`, `"a"`}, `"a"`, nil},
		{"patterns with letters of any script", `{"pattern":"^\\p{L}+$"}`, []string{`"1"`, `"α"`}, `"α"`, nil},
		{"not JSON", `{"type":`, nil, "", []string{"the schema is not JSON", "pass a JSON Schema"}},
		{"not a schema", `{"type":"nothing"}`, nil, "", []string{"the schema is not valid", "correct it"}},
		{"not an object", `[1]`, nil, "", []string{"neither an object nor true or false"}},
		{"references outside", `{"$ref":"file:///etc/passwd"}`, nil, "", []string{"file:///etc/passwd", "$defs"}},
		{"large", `{"description":"` + strings.Repeat("x", maxSchema) + `"}`, nil, "", []string{"over the limit of 20000"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
				asked++
				if asked > 1 && !strings.Contains(r.Prompt, "Your answer is not valid:\n- at /") && !strings.Contains(r.Prompt, "no JSON") {
					t.Errorf("the repair says %q", r.Prompt)
				}
				return say(test.answers[asked-1])
			}), nil)
			s, err := b.Ask(t.Context(), StructuredInput{Prompt: "x", Schema: Schema(test.schema)}, nil)
			if test.words != nil {
				systest.WantError(t, err, test.words...)
			} else if err != nil || s.Text != test.want || s.Meta.Repaired != (len(test.answers) > 1) {
				t.Errorf("got %s, %v, %+v", s.Text, err, s.Meta)
			}
			if asked != len(test.answers) {
				t.Errorf("asked %d times", asked)
			}
		})
	}
	for _, form := range []string{object, string(must(json.Marshal(object)))} {
		var in StructuredInput
		if err := json.Unmarshal([]byte(`{"schema":`+form+`}`), &in); err != nil || string(in.Schema) != object {
			t.Errorf("%s is read as %s, %v", form, in.Schema, err)
		}
	}
}

// An agent that knows schemas gets the schema. If the model's service does not take it, the
// prompt alone has it.
func TestSchemaOfTheAgent(t *testing.T) {
	const schema = `{"type":"integer"}`
	for _, takes := range []bool{true, false} {
		var asked []string
		refuses := script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
			if asked = append(asked, string(r.Schema)); r.Schema != nil {
				return agent.Result{}, &agent.Error{Kind: agent.BadRequest}
			}
			return say("1")
		})
		b := newTestBridge(t, refuses, func(cfg *Config) {
			row, warm := *cfg.Agent, *cfg.Agent.Warm
			warm.TakesSchema, row.Warm = takes, &warm
			cfg.Agent = &row
		})
		s, err := b.Ask(t.Context(), StructuredInput{Prompt: "x", Schema: Schema(schema)}, nil)
		if takes && (err != nil || s.Text != "1" || !slices.Equal(asked, []string{schema, ""})) ||
			!takes && (err == nil || len(asked) != 1) {
			t.Errorf("takes %v: %s, %v; asked with %q", takes, s.Text, err, asked)
		}
	}
}

// A schema that is not valid under its draft is an error. An answer is checked for
// formats in every draft, and all of its errors are listed.
func TestSchemaDrafts(t *testing.T) {
	const properties = `"type":"object","properties":{"id":{"type":"integer","minimum":1},"mail":{"format":"email"},` +
		`"tags":{"type":"array","items":{"enum":["a","b"]}}},"required":["id","name"],"additionalProperties":false`
	want := []string{
		"at /: missing property 'name'", "at /: additional properties 'other' not allowed",
		"at /id: minimum: got 0, want 1", "at /mail: 'x' is not valid email: missing @",
		"at /tags/1: value must be one of 'a', 'b'",
	}
	for _, draft := range []string{
		"", "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#",
		"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema",
		"https://json-schema.org/draft/2020-12/schema",
	} {
		name := ""
		if draft != "" {
			name = fmt.Sprintf(`"$schema":%q,`, draft)
		}
		for _, schema := range []string{
			`"type":"nothing"`, `"required":"id"`, `"properties":{"a":{"minLength":-1}}`, `"pattern":"("`,
		} {
			if err := CheckSchema([]byte("{" + name + schema + "}")); err == nil {
				t.Errorf("%s: %s is accepted", draft, schema)
			}
		}
		schema, err := compile([]byte("{" + name + properties + "}"))
		if err != nil {
			t.Errorf("%s: %v", draft, err)
			continue
		}
		_, got := validate(schema, `{"id":0,"mail":"x","tags":["a","c"],"other":1}`)
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: %q", draft, got)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
