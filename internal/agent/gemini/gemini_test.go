package gemini

import (
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/sys/systest"
)

func TestEnvironment(t *testing.T) {
	tmp := "/tmp/x"
	env := childEnv([]string{
		"HOME=/h", "Path=C:\\x", "https_proxy=p", "NODE_EXTRA_CA_CERTS=c", "GEMINI_API_KEY=k", "GOOGLE_CLOUD_PROJECT=p", "CLOUDSDK_X=1", "LC_ALL=C",
		"AWS_SECRET_ACCESS_KEY=s", "ANTHROPIC_API_KEY=a", "NODE_OPTIONS=--inspect", "GEMINI_CLI_IDE_SERVER_PORT=1", "GEMINI_SANDBOX=docker", "TMPDIR=/tmp", "LD_PRELOAD=x", "TERM=xterm", "TMUX=t", "GEMINI_SESSION_ID=1", "GEMINI_WARM_AHEAD=1",
		"Google_Api_Key=g", "Gemini_Sandbox=docker",
	}, tmp)
	want := []string{
		"CLOUDSDK_X=1", "GEMINI_API_KEY=k", "GOOGLE_CLOUD_PROJECT=p", "Google_Api_Key=g", "HOME=/h", "LC_ALL=C", "NODE_EXTRA_CA_CERTS=c", "Path=C:\\x", "https_proxy=p",
		"NO_COLOR=1", "FORCE_COLOR=0", "TERM=dumb", "NO_BROWSER=true", "TMPDIR=" + tmp, "GEMINI_CLI_NO_RELAUNCH=true", "NODE_OPTIONS=--max-old-space-size=8192",
	}
	if runtime.GOOS == "windows" {
		want = slices.Insert(want, len(want)-2, "TMP="+tmp, "TEMP="+tmp)
	}
	if !slices.Equal(env, want) {
		t.Errorf("got %q", env)
	}
}

// A prompt that began with a byte order mark and "/init" ran that command: the
// CLI trims more characters from the start than Go treats as white space.
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
				for runner, text := range map[string]string{agent.Warmed: row.Warm.Prompt(prompt), agent.Spawned: row.OneShot.Prompt(prompt)} {
					if !strings.HasPrefix(text, "The request:\n\n") {
						t.Fatalf("%s: the prompt %q goes to the CLI as %q", runner, prompt, text)
					}
				}
			}
		}
	}
	for _, plain := range []string{"explain /init", "3 / 4", "\u00dcber /init", "\u4ec0\u4e48 /init", "\u0663 /init"} {
		if warm, spawn := row.Warm.Prompt(plain), row.OneShot.Prompt(plain); warm != plain || spawn != plain {
			t.Errorf("%q goes to the CLI as %q and as %q", plain, warm, spawn)
		}
	}
}

func TestEscape(t *testing.T) {
	note := escapeNote
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
		if got := escape(test[0]); got != test[1] {
			t.Errorf("escape(%q) is %q, want %q", test[0], got, test[1])
		}
		if escaped := escape(test[0]); escape(escaped) != escaped {
			t.Errorf("escaping %q twice changes it: %q", test[0], escape(escaped))
		}
	}
	if got := unescape(`a\@b`); got != "a@b" {
		t.Errorf("unescape gives %q", got)
	}
}

// The CLI's own expression for file names finds nothing in an escaped text.
func FuzzEscape(f *testing.F) {
	cli := regexp2.MustCompile(`(?<!\\)@(?:(?:"(?:[^"]*)")|(?:\\.|[^ \t\n\r,;!?()\[\]{}.]|\.(?!$|[ \t\n\r])))+`, regexp2.ECMAScript)
	for _, s := range []string{"a@b", "@@@x", `\@@x`, "@.x @. @", `@"a b" @\ x`, "/x @y", "@\xff@\u00e9", "@.\r\n@.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped := escape(text)
		if m, err := cli.FindStringMatch(escaped); err == nil && m != nil {
			t.Errorf("of %q, escaped as %q, the CLI reads %q", text, escaped, m.String())
		}
		if strings.HasPrefix(escaped, "/") {
			t.Errorf("%q is a command", escaped)
		}
		if !strings.Contains(text, `\@`) && !strings.Contains(unescape(escaped), text) {
			t.Errorf("%q is lost in %q", text, escaped)
		}
	})
}

func TestEachSearchIsWatched(t *testing.T) {
	tr := newTranscript()
	parse(tr).read(strings.NewReader(`{"type":"tool_use","tool_name":"google_web_search","tool_id":"a"}` + "\n" +
		`{"type":"tool_use","tool_name":"google_web_search","tool_id":"b"}` + "\n" + `{"type":"tool_result","tool_id":"a","status":"success"}` + "\n"))
	if since, running := tr.Searching(time.Now().Add(time.Minute)); !running || since < time.Minute {
		t.Errorf("the second is watched for %s", since)
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
		// Words that only look similar.
		{1, "syntax error in line 4290 of author.go", "", agent.Failed},
		{1, "", "the author wrote 429 lines about authentication in 1503", agent.Failed},
		{1, "", "Error executing tool read_file: File not found: quota exceeded 429 UNAUTHENTICATED.txt", agent.Crashed},
		{1, "", "", agent.Crashed},
	} {
		if got := classify(nil, test.exit, test.message, test.stderr); got.Kind != test.want {
			t.Errorf("exit %d, %q, %q is %q, want %q", test.exit, test.message, test.stderr, got.Kind, test.want)
		}
	}
}

// "Gemini CLI failed (Ripgrep is not available. ...)" hid the cause of the
// failure: the CLI prints many warnings when it starts.
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
		if got := classify(nil, 1, "", test.stderr); got.Message != test.want {
			t.Errorf("%q is quoted, want %q", got.Message, test.want)
		}
	}
}

// Each error that a user can see names the next step.
func TestEveryErrorHasANextStep(t *testing.T) {
	for _, kind := range agent.Kinds() {
		for _, err := range []*agent.Error{row.Error(kind, "what the CLI said"), {Kind: kind, Message: "what the CLI said"}} {
			what, next, ok := strings.Cut(err.Error(), " (what the CLI said): ")
			if !ok || what == "" || next == "" {
				t.Errorf("%q says %q", kind, err)
			}
		}
	}
	for kind, r := range row.Remedies {
		if !slices.Contains(agent.Kinds(), kind) || r.What == "" || r.Next == "" {
			t.Errorf("the remedy of %q is %+v", kind, r)
		}
	}
}

func TestSecretsAreTakenOut(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "AIzaSyVerySecret")
	err := classify(nil, 1, `[API Error: {"error":{"message":"key AIzaSyVerySecret at https://x/?key=AIzaSyOther&a=b is bad"}}]`, "")
	if text := err.Error(); strings.Contains(text, "VerySecret") || strings.Contains(text, "Other") || !strings.Contains(text, "is bad") {
		t.Errorf("got %q", text)
	}
}

// An administrator's policies make the CLI ignore Pollux's. Denials do no harm,
// permissions do.
func TestSystemPolicies(t *testing.T) {
	dir := t.TempDir()
	if err := checkSystemPolicies(dir); err != nil {
		t.Error(err)
	}
	write := func(decision string) {
		rule := "[[rule]]\ntoolName = \"x\"\ndecision = \"" + decision + "\"\npriority = 1\n"
		systest.WriteFile(t, filepath.Join(dir, "p.toml"), rule)
	}
	write("deny")
	if err := checkSystemPolicies(dir); err != nil {
		t.Error(err)
	}
	write("allow")
	agenttest.WantKind(t, checkSystemPolicies(dir), agent.Unenforceable)
}

func newTranscript() *agent.Transcript {
	return agent.NewTranscript(row, nil, false, func(agent.Event) {})
}

// parse returns a parser of a transcript.
func parse(tr *agent.Transcript) *parser {
	return &parser{update: func(u agent.Update) { tr.Update(row.OneShot, u, time.Now()) }, ended: make(chan struct{})}
}

// An answer without a line that is too long to read does not count as complete.
func TestLineTooLong(t *testing.T) {
	const before, after = `{"type":"message","role":"assistant","content":"a"}` + "\n", `{"type":"result","status":"success"}` + "\n"
	for long, want := range map[string]bool{"": false, strings.Repeat("x", maxLine+1) + "\n": true} {
		tr := newTranscript()
		parse(tr).read(io.MultiReader(strings.NewReader(before), strings.NewReader(long), strings.NewReader(after)))
		if r := tr.Result(); r.Answer != "a" || r.Truncated != want {
			t.Errorf("%d bytes: %+v", len(long), r)
		}
	}
}

// The parser accepts anything.
func FuzzTranscript(f *testing.F) {
	f.Add([]byte(`{"type":"init"}` + "\n" + `{"type":"message","role":"assistant","content":"a","delta":true}` + "\n" + `{"type":"result","status":"success","stats":{"models":{"m":{}}}}` + "\n"))
	f.Add([]byte(`{"type":"tool_use","tool_id":"1","tool_name":"x","parameters":{"query":"ü"}}` + "\r\n\n{\n"))
	f.Add([]byte(`{"type":"result","status":"error"}` + "\n" + `{"type":"result"}`))
	f.Fuzz(func(t *testing.T, data []byte) { parse(newTranscript()).read(strings.NewReader(string(data))) })
}
