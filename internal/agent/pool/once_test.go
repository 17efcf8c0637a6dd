package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// once is a pool whose requests have one attempt each.
type once struct{ *Pool }

func (o once) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	req.Pace = func(context.Context) error { return nil }
	return o.Attempt(ctx, req, emit)
}

// A box is a bench with a pool that starts a fake CLI for each request.
type box struct {
	*agenttest.Bench
	pool *Pool
}

func newBox(t *testing.T, change func(*agent.Options)) *box {
	t.Helper()
	agenttest.Isolate(t, "*")
	cli := agenttest.Install(t, fakecli.Install, t.TempDir(), "0.61.0")
	var opts agent.Options
	if change != nil {
		change(&opts)
	}
	p, err := New(gemini.Agent(), opts)
	if err != nil {
		t.Fatal(err)
	}
	b := agenttest.NewBench(t, t.TempDir(), agent.Source{Command: cli}, once{p})
	b.Spawn = true
	return &box{b, p}
}

// run asks for a fake by name.
func (b *box) run(ctx context.Context, prompt string) (agent.Result, error) {
	b.T.Helper()
	return b.Ask(ctx, agent.Request{Prompt: prompt})
}

func TestNarrationIsNotTheAnswer(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), "fake:narrate")
	if err != nil || r.Answer != "The answer." || r.Narration != "I will read it.\nNow another." || r.Tools != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	want := []string{
		"agent.Started{}", "agent.Text{Text:I will read it. }",
		"agent.ToolUse{Name:read_file Summary:hello.txt}", "agent.ToolResult{Name:read_file OK:true Message:}",
		"agent.Text{Text:Now another. }",
		`agent.ToolUse{Name:grep_search Summary:"x y"}`, "agent.ToolResult{Name:grep_search OK:false Message:}",
		"agent.Text{Text:The }", "agent.Text{Text:answer.}",
	}
	if got := b.Events()[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

func TestCharactersSplitBetweenReads(t *testing.T) {
	b := newBox(t, nil)
	if r, err := b.run(t.Context(), "fake:bytes"); err != nil || r.Answer != "Grüße, 世界 🌍" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

// A CLI that ends before it has read its prompt closes the pipe while it is
// written.
func TestChildThatDoesNotReadItsPrompt(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.Run(t.Context(), agent.Request{Prompt: strings.Repeat("long ", 1<<20), Model: "unread", Dir: b.Dir}, func(agent.Event) {})
	if err != nil || r.Answer != "did not read" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

func TestCancelIsAnsweredAtOnce(t *testing.T) {
	for _, fake := range []string{"hang", "stubborn", "grandchild"} {
		t.Run(fake, func(t *testing.T) {
			b := newBox(t, nil)
			cause := errors.New("the test's cause")
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := make(chan struct{})
			_, err := b.Run(ctx, agent.Request{Prompt: "fake:" + fake, Dir: b.Dir, Released: func() { close(gone) }}, func(ev agent.Event) {
				if _, ok := ev.(agent.Started); ok {
					cancel(cause)
				}
			})
			if err != cause {
				t.Errorf("got %v", err)
			}
			if fake == "stubborn" {
				select {
				case <-gone:
					t.Error("a child that ignores the signal was gone when the answer came")
				default:
				}
			}
			select {
			case <-gone:
			case <-time.After(agenttest.Timeout):
				t.Fatal("the child lives on")
			}
		})
	}
}

// An agent that has answered and does not exit is stopped.
func TestLingeringChild(t *testing.T) {
	b := newBox(t, nil)
	if r, err := b.run(t.Context(), "fake:linger"); err != nil || r.Answer != "answered" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

func TestSilenceIsEnded(t *testing.T) {
	b := newBox(t, func(c *agent.Options) { c.IdleTimeout = 300 * time.Millisecond })
	_, err := b.run(t.Context(), "fake:hang")
	agenttest.WantKind(t, err, agent.Stalled, "no output for 300ms")
}

// A tool that runs although the policy denies it ends the run.
func TestStrayToolEndsTheRun(t *testing.T) {
	b := newBox(t, nil)
	_, err := b.run(t.Context(), "fake:stray")
	agenttest.WantKind(t, err, agent.Strayed, "run_shell_command", "check what it changed")
	_, err = b.run(t.Context(), "fake:stray-burst") // all at once, with the result
	agenttest.WantKind(t, err, agent.Strayed, "write_file")
	if r, err := b.run(t.Context(), "fake:alias"); err != nil || r.Answer != "searched" {
		t.Errorf("an older name of a tool that is allowed: %q, %v", r.Answer, err)
	}
}

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		fake string
		want agent.Kind
		text string // partial
	}{
		{"crash", agent.Crashed, "half of"},
		{"killed", agent.Crashed, ""},
		{"exit=53", agent.TurnLimit, ""},
		{"exit=1", agent.TurnLimit, ""},
		{"exit-after-success=1", agent.Crashed, "looks good"},
		{"stderr=55 Gemini CLI is not running in a trusted directory.", agent.Untrusted, ""},
		{"stderr=41 Please set an Auth method in your settings.json", agent.Auth, ""},
		{"stderr=1 Error authenticating: IneligibleTierError: not eligible", agent.TierEnded, ""},
		{"stderr=1 Unknown argument: admin-policy", agent.TooOld, ""},
	} {
		t.Run(test.fake, func(t *testing.T) {
			b := newBox(t, nil)
			r, err := b.run(t.Context(), "fake:"+test.fake)
			agenttest.WantKind(t, err, test.want)
			if r.Partial() != test.text {
				t.Errorf("partial text %q", r.Partial())
			}
		})
	}
}

func TestRetriesAreAnnounced(t *testing.T) {
	b := newBox(t, nil)
	if _, err := b.run(t.Context(), "fake:retry=20"); err != nil {
		t.Fatal(err)
	}
	want := "agent.Retry{Attempt:1 Wait:20ms Kind:quota per minute Message:You exceeded your current quota. * Quota exceeded for metric: x, limit: 5 Please retry in 1s Session: Unsure:false}"
	if !slices.Contains(b.Events(), want) {
		t.Errorf("events %q", b.Events())
	}
}

func TestOutputIsBounded(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), fmt.Sprintf("fake:big=%d", 20<<20)) // one line, longer than a line may be
	if err != nil || !r.Truncated || len(r.Answer) != agent.MaxAnswer {
		t.Errorf("%d bytes, truncated %v, %v", len(r.Answer), r.Truncated, err)
	}
	b.pool.most = 2 << 20
	if r, err := b.run(t.Context(), "fake:flood=1"); err != nil || r.Answer != "after the flood" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
	_, err = b.run(t.Context(), "fake:flood=3")
	agenttest.WantKind(t, err, agent.TooMuchOutput, "over 2 MiB")
}

// Every value is joined to its flag, and none of them is yolo.
func TestArguments(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.Run(t.Context(), agent.Request{Prompt: "fake:args", Model: "--yolo", Dir: b.Dir}, func(agent.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(r.Answer, "\n")
	for _, want := range []string{"--model=--yolo", "--approval-mode=default", "--output-format=stream-json", "--sandbox=false", "--extensions=none"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	for _, a := range args {
		if !strings.HasPrefix(a, "--") || !strings.Contains(a, "=") || a == "--yolo" {
			t.Errorf("the argument %q stands alone", a)
		}
		// A project may define a server with any name that can be guessed.
		if name, ok := strings.CutPrefix(a, "--allowed-mcp-server-names="); ok && len(name) < 20 {
			t.Errorf("MCP servers of the name %q are started", name)
		}
	}
}

// When a stream breaks, the CLI asks again and prints the text as if it continued.
func TestRetriedStreamIsNotDoubled(t *testing.T) {
	for name, want := range map[string]string{"again": "This is the first half of the long answer", "pause": "one and two", "digits": "11"} {
		b := newBox(t, nil)
		if r, err := b.run(t.Context(), "fake:"+name); err != nil || r.Answer != want {
			t.Errorf("%s: %q, %v", name, r.Answer, err)
		}
	}
}

// Text that the model quotes from an escaped prompt is returned unescaped.
func TestAnswersAreNotEscaped(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), "fake:echo @a and x@y")
	if err != nil || !strings.HasPrefix(r.Answer, "fake:echo @a and x@y\n") {
		t.Errorf("got %q, %v", r.Answer, err)
	}
	// If the prompt contains both, nothing is unescaped.
	if r, err = b.run(t.Context(), `fake:echo @a and \@b`); err != nil || !strings.HasPrefix(r.Answer, `fake:echo \@a and \@b`) {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

// The CLI reads a path with a comma as two, and ignores a missing policy.
func TestCommaInTheTemporaryDirectory(t *testing.T) {
	systest.SetTemp(t, filepath.Join(t.TempDir(), "a,b"))
	systest.MakeDir(t, os.TempDir())
	_, err := New(gemini.Agent(), agent.Options{})
	systest.WantError(t, err, "set "+disk.TempVars+" to one without")
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestIgnoredPolicyEndsTheRun(t *testing.T) {
	b := newBox(t, nil)
	for _, fake := range []string{"no-policy", "last-words"} {
		_, err := b.run(t.Context(), "fake:"+fake)
		agenttest.WantKind(t, err, agent.Unenforceable, "does not follow")
	}
}

// A cleaner of temporary files may remove the directory.
func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	b := newBox(t, nil)
	if err := os.RemoveAll(b.pool.temp.Path); err != nil && runtime.GOOS != "windows" { // where the lock stays
		t.Fatal(err)
	}
	if _, err := b.run(t.Context(), "fake:echo"); err != nil {
		t.Error(err)
	}
}

// A CLI outside of a package is asked for its version. One that fails is asked again, but not
// by every request.
func TestVersionIsAskedAgain(t *testing.T) {
	b := newBox(t, nil)
	b.Source.Command = agenttest.WriteProgram(t, t.TempDir(), "gemini", "test -e $0.2 && echo 0.50.2; touch $0.2",
		"if exist \"%~f0.2\" echo 0.50.2\necho 2>\"%~f0.2\"")
	_, err := b.Check(t.Context(), b.Source)
	agenttest.WantKind(t, err, agent.NoVersion, "--version")
	_, err = b.Check(t.Context(), b.Source)
	agenttest.WantKind(t, err, agent.NoVersion)
	for _, l := range b.pool.lookups {
		l.at = l.at.Add(-versionInterval)
	}
	if cli, err := b.Check(t.Context(), b.Source); err != nil || cli.Version != "0.50.2" {
		t.Errorf("got %+v, %v", cli, err)
	}
}

// A CLI that took long to print its version was called "too old". Each request
// that did not wait long enough asked it again.
func TestSlowVersionIsAskedOnce(t *testing.T) {
	cli, asked, open := slowFake(t)
	b := newBox(t, nil)
	b.Source.Command = cli
	late := errors.New("late")
	ctx, cancel := context.WithCancelCause(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := b.run(ctx, "fake:echo")
		first <- err
	}()
	for asked() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel(late)
	if err := <-first; !errors.Is(err, late) {
		t.Errorf("a call that ends before the version is known: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if cli, err := b.Check(t.Context(), b.Source); err != nil || cli.Version != "0.61.0" {
				t.Errorf("got %+v, %v", cli, err)
			}
		})
	}
	open()
	wg.Wait()
	if n := asked(); n != 1 {
		t.Errorf("the CLI was asked %d times for its version", n)
	}
}

// Each source has its own lookup. The runner remembers a limited number of them.
func TestLookupsOfSources(t *testing.T) {
	cli, asked, open := slowFake(t)
	open()
	b := newBox(t, nil)
	check := func(i, want int) {
		t.Helper()
		from := agent.Source{Command: cli, Env: agent.Env{"PATH=" + os.Getenv("PATH"), fmt.Sprintf("GEMINI_API_KEY=%d", i)}}
		if program, err := b.Check(t.Context(), from); err != nil || program.Version != "0.61.0" || asked() != want {
			t.Errorf("got %+v, %v; it was asked %d times, want %d", program, err, asked(), want)
		}
	}
	check(1, 1)
	check(2, 2)
	check(1, 2)
	for i := range maxLookups {
		b.pool.lookups[strconv.Itoa(i)] = &lookup{}
	}
	check(3, 3)
	check(3, 3)
	if n := len(b.pool.lookups); n > maxLookups {
		t.Errorf("%d lookups are kept", n)
	}
}

func TestCheck(t *testing.T) {
	for version, want := range map[string]agent.Kind{"0.61.0": "", "0.35.0": "", "1.0.0": "", "0.34.9": agent.TooOld, "0.36.0-preview.1": "", "odd": agent.NoVersion} {
		t.Run(version, func(t *testing.T) {
			cli := agenttest.Install(t, fakecli.Install, t.TempDir(), version)
			b := newBox(t, nil)
			b.Source.Command = cli
			got, err := b.Check(t.Context(), b.Source)
			if want == "" && err != nil || got.Version != version {
				t.Errorf("got %+v, %v", got, err)
			}
			if want != "" {
				agenttest.WantKind(t, err, want)
				// It is not started either.
				_, err = b.run(t.Context(), "fake:echo")
				agenttest.WantKind(t, err, want)
			}
		})
	}
	b := newBox(t, nil)
	b.Source.Command = filepath.Join(t.TempDir(), "no-such-cli")
	_, err := b.Check(t.Context(), b.Source)
	agenttest.WantKind(t, err, agent.NotInstalled, "npm install")
}

func TestClosedRunnerRunsNothing(t *testing.T) {
	b := newBox(t, nil)
	running := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		_, err := b.Run(t.Context(), agent.Request{Prompt: "fake:hang", Dir: b.Dir}, func(agent.Event) { close(started) })
		running <- err
	}()
	<-started
	b.Close()
	if err := <-running; err != agent.ErrClosed {
		t.Errorf("a running call ends with %v", err)
	}
}

// slowFake returns a fake that prints its version only after open was called.
func slowFake(t *testing.T) (path string, asked func() int, open func()) {
	t.Helper()
	return agenttest.SlowVersion(t, agenttest.Install(t, fakecli.Install, t.TempDir(), "0.61.0"), "0.61.0")
}
