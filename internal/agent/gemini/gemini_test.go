package gemini

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlclark/regexp2"
	"go.uber.org/goleak"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/sys"
)

// patience is how long a step may take on a busy machine.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	fakecli.Main()
	goleak.VerifyTestMain(m)
}

// A box is a spawner of fake CLIs, and what its runs said.
type box struct {
	*Spawner
	t      *testing.T
	dir    string
	events []string
}

func newBox(t *testing.T, change func(*Config)) *box {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	cli, err := fakecli.Install(t.TempDir(), "0.61.0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Command: cli}
	if change != nil {
		change(&cfg)
	}
	s, err := NewSpawner(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{Spawner: s, t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if n := fakeProcesses(t); n > 0 {
			t.Errorf("%d processes are left", n)
		}
	})
	return b
}

// fakeProcesses counts the fakes that run.
func fakeProcesses(t *testing.T) (n int) {
	t.Helper()
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

// run asks for a fake by name and returns what came of it.
func (b *box) run(ctx context.Context, prompt string) (agent.Result, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	released := make(chan struct{})
	r, err := b.Run(ctx, agent.Request{Prompt: prompt, Dir: b.dir, Released: func() { close(released) }}, func(ev agent.Event) {
		b.events = append(b.events, fmt.Sprintf("%T%+v", ev, ev))
	})
	select {
	case <-released:
	case <-time.After(patience):
		b.t.Fatal("the run was never released")
	}
	return r, err
}

func wantKind(t *testing.T, err error, want agent.Kind, words ...string) {
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

func TestAnswer(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), "fake:echo hello")
	if err != nil || r.Answer != "fake:echo hello" {
		t.Fatalf("got %+v, %v", r, err)
	}
	// The model that wrote the most, not the one that routed.
	if r.Model != "gemini-fake" || r.Tokens.Total != 10 {
		t.Errorf("model %q, tokens %+v", r.Model, r.Tokens)
	}
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
	if got := b.events[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

func TestCharactersSplitBetweenReads(t *testing.T) {
	b := newBox(t, nil)
	if r, err := b.run(t.Context(), "fake:bytes"); err != nil || r.Answer != "Grüße, 世界 🌍" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

func TestOtherOutputIsTolerated(t *testing.T) {
	b := newBox(t, nil)
	if r, err := b.run(t.Context(), "fake:noise"); err != nil || r.Answer != "through the noise" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

func TestLegacyJSON(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), "fake:legacy")
	if err != nil || r.Answer != "from an old CLI" || r.Model != "gemini-old" || r.Tokens.Total != 7 {
		t.Errorf("got %+v, %v", r, err)
	}
	_, err = b.run(t.Context(), "fake:legacy-error")
	wantKind(t, err, agent.QuotaDay)
}

// A CLI that ends before it has read its prompt closes the pipe under us.
func TestChildThatDoesNotReadItsPrompt(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.Run(t.Context(), agent.Request{Prompt: strings.Repeat("long ", 1<<20), Model: "unread", Dir: b.dir}, func(agent.Event) {})
	if err != nil || r.Answer != "did not read" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

// What a run leaves behind holds its output open, and neither delays the
// answer nor outlives the run.
func TestGrandchildHoldsTheOutput(t *testing.T) {
	b := newBox(t, nil)
	if r, err := b.run(t.Context(), "fake:grandchild=1"); err != nil || r.Answer != "I have a child" {
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
			_, err := b.Run(ctx, agent.Request{Prompt: "fake:" + fake, Dir: b.dir, Released: func() { close(gone) }}, func(ev agent.Event) {
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
			case <-time.After(patience):
				t.Fatal("the child lives on")
			}
		})
	}
}

func TestTextBeforeTheEndIsKept(t *testing.T) {
	b := newBox(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := b.Run(ctx, agent.Request{Prompt: "fake:say-and-hang", Dir: b.dir}, func(ev agent.Event) {
		if _, ok := ev.(agent.Text); ok {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || r.Partial() != "as far as I came" {
		t.Errorf("got %q, %v", r.Partial(), err)
	}
}

// A CLI that has answered and does not end is ended.
func TestLingeringChild(t *testing.T) {
	b := newBox(t, nil)
	if r, err := b.run(t.Context(), "fake:linger"); err != nil || r.Answer != "answered" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

func TestSilenceIsEnded(t *testing.T) {
	b := newBox(t, func(c *Config) { c.Idle = 300 * time.Millisecond })
	_, err := b.run(t.Context(), "fake:hang")
	wantKind(t, err, agent.Stalled, "no output for 300ms")
}

// A tool that runs although the policy denies it ends the run.
func TestStrayToolEndsTheRun(t *testing.T) {
	b := newBox(t, nil)
	_, err := b.run(t.Context(), "fake:stray")
	wantKind(t, err, agent.Strayed, "run_shell_command", "look at what changed")
	_, err = b.run(t.Context(), "fake:stray-burst") // all at once, and the end
	wantKind(t, err, agent.Strayed, "write_file")
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
		{"silent", agent.Crashed, ""},
		{"empty", agent.Empty, ""},
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
			wantKind(t, err, test.want)
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
	want := "agent.Retry{Attempt:1 Wait:20ms Kind:quota per minute Message:You exceeded your current quota. * Quota exceeded for metric: x, limit: 5 Please retry in 1s Unsure:false}"
	if !slices.Contains(b.events, want) {
		t.Errorf("events %q", b.events)
	}
}

func TestOutputIsBounded(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), fmt.Sprintf("fake:big=%d", 20<<20)) // one line, longer than a line may be
	if err != nil || !r.Truncated || len(r.Answer) != agent.MaxAnswer {
		t.Errorf("%d bytes, truncated %v, %v", len(r.Answer), r.Truncated, err)
	}
	if r, err := b.run(t.Context(), "fake:flood=100"); err != nil || r.Answer != "after the flood" {
		t.Errorf("got %q, %v", r.Answer, err)
	}
	_, err = b.run(t.Context(), "fake:flood=260")
	wantKind(t, err, agent.TooMuchOutput)
}

// Every value is held to its flag, and there is no yolo among them.
func TestArguments(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.Run(t.Context(), agent.Request{Prompt: "fake:args", Model: "--yolo", Dir: b.dir}, func(agent.Event) {})
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
		// A project may have a server of any name that can be known.
		if name, ok := strings.CutPrefix(a, "--allowed-mcp-server-names="); ok && len(name) < 20 {
			t.Errorf("MCP servers of the name %q are started", name)
		}
	}
}

func TestEnvironment(t *testing.T) {
	tmp := "/tmp/x"
	env := childEnv([]string{
		"HOME=/h", "Path=C:\\x", "https_proxy=p", "NODE_EXTRA_CA_CERTS=c", "GEMINI_API_KEY=k", "GOOGLE_CLOUD_PROJECT=p", "CLOUDSDK_X=1", "LC_ALL=C",
		"AWS_SECRET_ACCESS_KEY=s", "ANTHROPIC_API_KEY=a", "NODE_OPTIONS=--inspect", "GEMINI_CLI_IDE_SERVER_PORT=1", "GEMINI_SANDBOX=docker", "TMPDIR=/tmp", "LD_PRELOAD=x",
	}, tmp)
	want := []string{
		"HOME=/h", "Path=C:\\x", "https_proxy=p", "NODE_EXTRA_CA_CERTS=c", "GEMINI_API_KEY=k", "GOOGLE_CLOUD_PROJECT=p", "CLOUDSDK_X=1", "LC_ALL=C",
		"NO_COLOR=1", "FORCE_COLOR=0", "GEMINI_CLI_NO_RELAUNCH=true", "NODE_OPTIONS=--max-old-space-size=8192", "NO_BROWSER=true", "TMPDIR=" + tmp,
	}
	if !slices.Equal(env, want) {
		t.Errorf("got %q", env)
	}
}

// A prompt that began with a byte order mark and "/init" ran that command: the
// CLI removes more characters from the start than Go takes for white space.
func TestNoPromptIsACommand(t *testing.T) {
	var starts []string
	for _, r := range fakecli.JSSpace + "\u0085\u00ad\u034f\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2061\u2064\u2066\u2069\ufe0f\ufff9\ufffc\ufffd\U000e0001\U000e0020" {
		starts = append(starts, string(r))
	}
	for c := range rune(0x20) {
		starts = append(starts, string(c))
	}
	for c := rune(0x7f); c < 0xa0; c++ {
		starts = append(starts, string(c))
	}
	starts = append(starts, "", "\xff", "\xef\xbb", "\ufeff\ufeff", " \ufeff\n", "\ufeff \u2028\u00a0")
	for _, start := range starts {
		for _, sign := range []string{"/", "$", "/ ", "$\ufeff", "?", "!", "@", "#", "\\/"} {
			for _, command := range append(slices.Clone(fakecli.Commands), "evil") {
				prompt := start + sign + command + " now"
				for runner, text := range map[string]string{agent.Warmed: warmText(t, prompt), agent.Spawned: Guard(prompt)} {
					if !strings.HasPrefix(text, "The request:\n\n") {
						t.Fatalf("%s: the prompt %q goes to the CLI as %q", runner, prompt, text)
					}
				}
			}
		}
	}
	for _, plain := range []string{"explain /init", "3 / 4", "\u00dcber /init", "\u4ec0\u4e48 /init", "\u0663 /init"} {
		if warm, spawn := warmText(t, plain), Guard(plain); warm != plain || spawn != plain {
			t.Errorf("%q goes to the CLI as %q and as %q", plain, warm, spawn)
		}
	}
}

// warmText is the text that a prompt is to a warm process.
func warmText(t *testing.T, prompt string) string {
	t.Helper()
	content, err := contents(agent.Request{}, prompt)
	if err != nil || len(content) != 1 || content[0].Type != "text" {
		t.Fatalf("got %+v, %v", content, err)
	}
	return content[0].Text
}

func TestGuard(t *testing.T) {
	note := guardNote
	for _, test := range [][2]string{
		{"plain", "plain"},
		{"@file", "The request:\n\n" + `\@file` + note},
		{"bob@example.org", `bob\@example.org` + note},
		{"@@x", "The request:\n\n" + `\@\@x` + note},
		{"see @@@@x", `see \@\@\@\@x` + note},
		{`already \@x`, `already \@x`},
		{"an @ alone, @{x} and @(y) end @", "an @ alone, @{x} and @(y) end @"},
		{"at the end @. or @.gitignore", `at the end @. or \@.gitignore` + note},
		{`see @"a b"`, `see \@"a b"` + note},
		{"a\n@b", "a\n\\@b" + note},
		{"/help me", "The request:\n\n/help me"},
		{"  /help", "The request:\n\n  /help"},
		{"// a comment", "The request:\n\n// a comment"},
		{"a/b", "a/b"},
	} {
		if got := Guard(test[0]); got != test[1] {
			t.Errorf("Guard(%q) is %q, want %q", test[0], got, test[1])
		}
		if guarded := Guard(test[0]); Guard(guarded) != guarded {
			t.Errorf("guarding %q twice changes it: %q", test[0], Guard(guarded))
		}
	}
	if got := Unguard(`a\@b`); got != "a@b" {
		t.Errorf("Unguard gives %q", got)
	}
}

// The CLI's own expression of what it reads finds nothing in a guarded text.
func FuzzGuard(f *testing.F) {
	cli := regexp2.MustCompile(`(?<!\\)@(?:(?:"(?:[^"]*)")|(?:\\.|[^ \t\n\r,;!?()\[\]{}.]|\.(?!$|[ \t\n\r])))+`, regexp2.ECMAScript)
	for _, s := range []string{"a@b", "@@@x", `\@@x`, "@.x @. @", `@"a b" @\ x`, "/x @y", "@\xff@\u00e9", "@.\r\n@.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		guarded := Guard(text)
		if m, err := cli.FindStringMatch(guarded); err == nil && m != nil {
			t.Errorf("of %q, guarded as %q, the CLI reads %q", text, guarded, m.String())
		}
		if strings.HasPrefix(guarded, "/") {
			t.Errorf("%q is a command", guarded)
		}
		if !strings.Contains(text, `\@`) && !strings.Contains(Unguard(guarded), text) {
			t.Errorf("%q is lost in %q", text, guarded)
		}
	})
}

// A stream that broke is asked for again, and printed as if it went on.
func TestRetriedStreamIsNotDoubled(t *testing.T) {
	for name, want := range map[string]string{"again": "This is the first half of the long answer", "pause": "one and two", "digits": "11"} {
		b := newBox(t, nil)
		if r, err := b.run(t.Context(), "fake:"+name); err != nil || r.Answer != want {
			t.Errorf("%s: %q, %v", name, r.Answer, err)
		}
	}
}

// What the model quotes of a guarded prompt comes back as it was written.
func TestAnswersAreNotGuarded(t *testing.T) {
	b := newBox(t, nil)
	r, err := b.run(t.Context(), "fake:echo @a and x@y")
	if err != nil || !strings.HasPrefix(r.Answer, "fake:echo @a and x@y\n") {
		t.Errorf("got %q, %v", r.Answer, err)
	}
	// Where the prompt had both, it cannot be told which is which.
	if r, err = b.run(t.Context(), `fake:echo @a and \@b`); err != nil || !strings.HasPrefix(r.Answer, `fake:echo \@a and \@b`) {
		t.Errorf("got %q, %v", r.Answer, err)
	}
}

// The CLI takes a path with a comma for two, and a policy it does not find for
// none.
func TestCommaInTheTemporaryDirectory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "a,b"))
	if err := os.Mkdir(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := NewSpawner(Config{Command: "gemini"})
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR to one without") {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestIgnoredPolicyEndsTheRun(t *testing.T) {
	b := newBox(t, nil)
	for _, fake := range []string{"no-policy", "last-words"} {
		_, err := b.run(t.Context(), "fake:"+fake)
		wantKind(t, err, agent.Unenforceable, "does not follow")
	}
}

func TestSearchWithoutEndIsEnded(t *testing.T) {
	b := newBox(t, nil)
	_, err := b.run(t.Context(), "fake:search-loop")
	wantKind(t, err, agent.SearchQuota)
}

func TestEachSearchIsWatched(t *testing.T) {
	tr := transcript{emit: func(agent.Event) {}}
	tr.Write([]byte(`{"type":"tool_use","tool_name":"google_web_search","tool_id":"a"}` + "\n" +
		`{"type":"tool_use","tool_name":"google_web_search","tool_id":"b"}` + "\n" + `{"type":"tool_result","tool_id":"a","status":"success"}` + "\n"))
	if since, any := tr.searched(time.Now().Add(time.Minute)); !any || since < time.Minute {
		t.Errorf("the second is watched for %s", since)
	}
}

// A cleaner of temporary files may take the directory.
func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	b := newBox(t, nil)
	if err := os.RemoveAll(b.root); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(t.Context(), "fake:echo"); err != nil {
		t.Error(err)
	}
}

// A CLI that is in no package is asked for its version, within the deadline.
func TestVersionIsAsked(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "gemini")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	b := newBox(t, func(c *Config) { c.Command = script("echo 0.50.1") })
	if cli, err := b.Check(t.Context()); err != nil || cli.Version != "0.50.1" {
		t.Errorf("got %+v, %v", cli, err)
	}
	// One that fails is asked again, but not by every call.
	b = newBox(t, func(c *Config) { c.Command = script("test -e $0.2 && echo 0.50.2; touch $0.2") })
	_, err := b.Check(t.Context())
	wantKind(t, err, agent.NoVersion, "--version")
	_, err = b.Check(t.Context())
	wantKind(t, err, agent.NoVersion)
	b.lookup.at = b.lookup.at.Add(-askAgain)
	if cli, err := b.Check(t.Context()); err != nil || cli.Version != "0.50.2" {
		t.Errorf("got %+v, %v", cli, err)
	}
	// One that takes too long is not called too old, and does not stay.
	if version, late := askVersion(t.Context(), script("echo 0.50.1; sleep 3600 & wait"), 50*time.Millisecond); version != "" || !late {
		t.Errorf("got %q, %v", version, late)
	}
	wantKind(t, ReadOnly(agent.Program{Path: "/bin/gemini", Late: true}), agent.NoVersion, "/bin/gemini --version took longer than 15s")
}

// A CLI that took long to say its version was "too old", and was asked again by
// each call that did not wait long enough.
func TestSlowVersionIsAskedOnce(t *testing.T) {
	cli, asked, open := slowVersion(t, "0.61.0")
	b := newBox(t, func(c *Config) { c.Command = cli })
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
			if cli, err := b.Check(t.Context()); err != nil || cli.Version != "0.61.0" {
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

// slowVersion is a fake CLI that lies in no package and does not say its version
// before open was called. asked is how often it was asked.
func slowVersion(t *testing.T, version string) (cli string, asked func() int, open func()) {
	t.Helper()
	fake, err := fakecli.Install(t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	cli = filepath.Join(t.TempDir(), "gemini")
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = --version ]; then\n\techo $$ >>$0.asked\n\twhile [ ! -e $0.open ]; do sleep 0.02; done\n\techo %s\n\texit\nfi\nexec %s \"$@\"\n", version, fake)
	if err := os.WriteFile(cli, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	asked = func() int {
		data, _ := os.ReadFile(cli + ".asked")
		return strings.Count(string(data), "\n")
	}
	return cli, asked, func() {
		if err := os.WriteFile(cli+".open", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		exit            int
		message, stderr string
		want            agent.Kind
	}{
		{1, "[API Error: You have exhausted your daily quota on this model.]\nPlease wait", "", agent.QuotaDay},
		{173, "[API Error: You exceeded your current quota, please check your plan.]", "", agent.QuotaMinute},
		{173, "", "", agent.QuotaMinute},
		{145, "", "", agent.Auth},
		{244, `[API Error: {"error":{"code":500,"message":"An internal error","status":"INTERNAL"}}]`, "", agent.Capacity},
		{247, `[API Error: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]`, "", agent.Capacity},
		{1, "[API Error: models/x is not found for API version v1beta]", "", agent.BadModel},
		{144, `[API Error: {"error":{"code":400,"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}]`, "", agent.Auth},
		{144, `[API Error: {"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]`, "", agent.TooLong},
		{144, `[API Error: {"error":{"code":400,"message":"odd","status":"INVALID_ARGUMENT"}}]`, "", agent.BadRequest},
		{0, "The model response was blocked due to safety settings.", "", agent.Blocked},
		{0, "The model returned an empty response with no text or thoughts.", "", agent.Empty},
		{1, "[API Error: exception TypeError: fetch failed sending request]", "", agent.Network},
		{1, "[API Error: terminated]", "", agent.Network},
		{52, "", "Error in settings.json: x\nPlease fix the configuration file(s) and try again.", agent.Settings},
		{53, "FatalTurnLimitedError: Reached max session turns", "", agent.TurnLimit},
		{1, "", "Error authenticating: FatalAuthenticationError: Manual authorization is required", agent.Auth},
		{1, "", "Error: No capacity available for model gemini-2.5-pro on the server", agent.Capacity},
		// Words that only look like it.
		{1, "syntax error in line 4290 of author.go", "", agent.Failed},
		{1, "", "the author wrote 429 lines about authentication in 1503", agent.Failed},
		{1, "", "Error executing tool read_file: File not found: quota exceeded 429 UNAUTHENTICATED.txt", agent.Crashed},
		{1, "", "", agent.Crashed},
	} {
		if got := classify(test.exit, test.message, test.stderr); got.Kind != test.want {
			t.Errorf("exit %d, %q, %q is %q, want %q", test.exit, test.message, test.stderr, got.Kind, test.want)
		}
	}
}

// "Gemini CLI failed (Ripgrep is not available. ...)" hid why it had failed: the CLI
// warns of much at its start.
func TestErrorsQuoteTheCause(t *testing.T) {
	const start = `[2026-11-22T02:04:32.706Z] [DEBUG] Ignore file not found: /p/.geminiignore, continue without it.
[2026-11-22T02:04:32.789Z] [DEBUG] Experiments loaded {
  experimentIds: [],
  flags: []
}
[2026-11-22T02:04:33.013Z] [WARN] Ripgrep is not available. Falling back to GrepTool.
[2026-11-22T02:04:33.099Z] [WARN] Project hooks disabled because the folder is not trusted.
[2026-11-22T02:04:33.310Z] [WARN] [STARTUP] Phase 'cli_startup' was started but never ended. Skipping metrics.
Ripgrep is not available. Falling back to GrepTool.
`
	for _, test := range []struct{ stderr, want string }{
		{start, ""},
		{start + "Error: Tool discovery command failed with code 7\n", "Error: Tool discovery command failed with code 7"},
		{start + "[2026-11-22T02:04:34.000Z] [ERROR] the command could not be started\n", "the command could not be started"},
		{start + "Error: You have exhausted your daily quota on this model.\nCleaning up failed\n", "Error: You have exhausted your daily quota on this model"},
		{start + "an early error\nthe last error\nbye\n", "the last error"},
		{start + "/a/b.js:12\n    throw new Error('boom');\n    ^\n\nTypeError: boom\n    at x (/a/b.js:12:3)\n\nNode.js v20.1.0\n", "TypeError: boom"},
		{start + "Killed\n", "Killed"},
	} {
		if got := classify(1, "", test.stderr); got.Message != test.want {
			t.Errorf("%q is quoted, want %q", got.Message, test.want)
		}
	}
}

// Each error that a user can meet says what to do next.
func TestEveryErrorHasANextStep(t *testing.T) {
	for kind, r := range agent.Remedies {
		text := (&agent.Error{Kind: kind, Message: "what the CLI said"}).Error()
		if r.Next == "" || !strings.HasSuffix(text, ": "+r.Next) || !strings.Contains(text, "what the CLI said") {
			t.Errorf("%q says %q", kind, text)
		}
	}
}

func TestSecretsAreTakenOut(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "AIzaSyVerySecret")
	err := classify(1, `[API Error: {"error":{"message":"key AIzaSyVerySecret at https://x/?key=AIzaSyOther&a=b is bad"}}]`, "")
	if text := err.Error(); strings.Contains(text, "VerySecret") || strings.Contains(text, "Other") || !strings.Contains(text, "is bad") {
		t.Errorf("got %q", text)
	}
}

func TestCheck(t *testing.T) {
	for version, want := range map[string]agent.Kind{"0.61.0": "", "0.35.0": "", "1.0.0": "", "0.34.9": agent.TooOld, "0.36.0-preview.1": "", "odd": agent.NoVersion} {
		t.Run(version, func(t *testing.T) {
			cli, err := fakecli.Install(t.TempDir(), version)
			if err != nil {
				t.Fatal(err)
			}
			b := newBox(t, func(c *Config) { c.Command = cli })
			got, err := b.Check(t.Context())
			if want == "" && err != nil || got.Version != version {
				t.Errorf("got %+v, %v", got, err)
			}
			if want != "" {
				wantKind(t, err, want)
				// It is not started either.
				_, err = b.run(t.Context(), "fake:echo")
				wantKind(t, err, want)
			}
		})
	}
	b := newBox(t, func(c *Config) { c.Command = filepath.Join(t.TempDir(), "no-such-cli") })
	_, err := b.Check(t.Context())
	wantKind(t, err, agent.NotInstalled, "npm install")
}

// An administrator's policies make the CLI ignore ours: denials are well,
// permissions are not.
func TestSystemPolicies(t *testing.T) {
	dir := t.TempDir()
	if err := checkSystemPolicies(dir); err != nil {
		t.Error(err)
	}
	write := func(decision string) {
		rule := "[[rule]]\ntoolName = \"x\"\ndecision = \"" + decision + "\"\npriority = 1\n"
		if err := os.WriteFile(filepath.Join(dir, "p.toml"), []byte(rule), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("deny")
	if err := checkSystemPolicies(dir); err != nil {
		t.Error(err)
	}
	write("allow")
	wantKind(t, checkSystemPolicies(dir), agent.Unenforceable)
}

func TestClosedSpawnerRunsNothing(t *testing.T) {
	b := newBox(t, nil)
	running := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		_, err := b.Run(t.Context(), agent.Request{Prompt: "fake:hang", Dir: b.dir}, func(agent.Event) { close(started) })
		running <- err
	}()
	<-started
	b.Close()
	if err := <-running; err != agent.ErrClosed {
		t.Errorf("a running call ends with %v", err)
	}
	if _, err := b.run(t.Context(), "fake:echo"); err != agent.ErrClosed {
		t.Errorf("a new call ends with %v", err)
	}
}

// What a killed spawner left is removed by the next; what a living one uses is
// not.
func TestStaleDirectoriesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead := filepath.Join(os.TempDir(), rootPrefix+"4194305-x")
	alive := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-x", rootPrefix, os.Getpid()))
	young := dead + "-young" // its process may be in another container
	long := time.Now().Add(-2 * staleAfter)
	for _, d := range []string{dead, alive, young} {
		if err := os.MkdirAll(filepath.Join(d, "run-1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(d, long, long); d != young && err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	// What a process has locked is its own, whatever its number and its age; a
	// killed one's lock is gone, and its directory goes at once.
	locked := func(name string) (string, *os.File) {
		dir := filepath.Join(os.TempDir(), rootPrefix+name)
		if err := os.MkdirAll(filepath.Join(dir, "worker-1", "home"), 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := sys.Lock(filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		return dir, lock
	}
	held, lock := locked("4194305-held")
	defer lock.Close()
	if err := os.Chtimes(held, long, long); err != nil {
		t.Fatal(err)
	}
	killed, lock := locked(fmt.Sprintf("%d-killed", os.Getpid()))
	lock.Close()
	s, err := NewSpawner(Config{Command: "gemini"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, d := range []string{dead, killed} {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("a dead one's directory is still there: %s", d)
		}
	}
	for _, d := range []string{alive, young, held, s.root} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("%s is gone", d)
		}
	}
}

// The stream's reader takes anything, in pieces of any size, and what it reads
// does not depend on the size.
func FuzzTranscript(f *testing.F) {
	f.Add([]byte(`{"type":"init"}`+"\n"+`{"type":"message","role":"assistant","content":"a","delta":true}`+"\n"+`{"type":"result","status":"success","stats":{"models":{"m":{}}}}`+"\n"), 3)
	f.Add([]byte(`{"type":"tool_use","tool_id":"1","tool_name":"x","parameters":{"query":"ü"}}`+"\r\n\n{\n"), 1)
	f.Add([]byte(`{"response":"x","stats":{}}`), 7)
	f.Add([]byte(`{"type":"message","role":"assistant","content":"Grüße 🌍"}`), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		read := func(size int) (agent.Result, string) {
			tr := transcript{emit: func(agent.Event) {}}
			for piece := range slices.Chunk(data, size) {
				tr.Write(piece)
			}
			tr.finish(nil)
			return tr.result(), tr.status + tr.message
		}
		whole, s1 := read(len(data) + 1)
		pieces, s2 := read(max(1, min(size, len(data)+1)))
		if whole != pieces || s1 != s2 {
			t.Errorf("%+v %q, in pieces %+v %q", whole, s1, pieces, s2)
		}
	})
}
