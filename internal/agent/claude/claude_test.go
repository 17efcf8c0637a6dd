package claude

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/sys/systest"
)

// What Claude Code prints.
func TestKinds(t *testing.T) {
	for _, test := range []struct {
		status  int
		message string
		want    agent.Kind
	}{
		{0, "Not logged in · Please run /login", agent.Auth},
		{403, "Failed to authenticate. API Error: 403 forbidden here", agent.Auth},
		{400, "API Error: 400 fake failure", agent.BadRequest},
		{400, "Prompt is too long", agent.TooLong},
		{404, "There's an issue with the selected model (claude-opus-5-5). It may not exist or you may not have access to it. Run --model to pick a different model.", agent.BadModel},
		{0, "Model 'nope' not found", agent.BadModel},
		{429, "API Error: Request rejected (429) · This request would exceed your account's rate limit. Please try again later.", agent.QuotaMinute},
		{429, "You've hit your limit · resets 4:37pm (UTC)", agent.QuotaDay},
		{529, "API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment.", agent.Capacity},
		{500, "API Error: 500 NORETRY. This is a server-side issue, usually temporary — try again in a moment.", agent.Capacity},
		{0, "API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)", agent.Network},
		{0, "error: unknown option '--tools'", agent.TooOld},
		{0, "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null", agent.Failed},
	} {
		agenttest.WantKind(t, failure(nil, test.status, test.message, nil), test.want)
	}
}

func TestRemedies(t *testing.T) {
	for kind, r := range row.Remedies {
		if !slices.Contains(agent.Kinds(), kind) || r.What == "" || r.Next == "" {
			t.Errorf("the remedy of %q is %+v", kind, r)
		}
	}
}

func TestResetAfter(t *testing.T) {
	for message, want := range map[string]time.Duration{
		"You've hit your limit · resets 4:37pm (UTC) (in 1h2m3s)": time.Hour + 2*time.Minute + 3*time.Second,
		"You've hit your limit · resets 4:37pm (UTC)":             0,
		"none": 0,
	} {
		if got := resetAfter(message); got != want {
			t.Errorf("%q resets after %s", message, got)
		}
	}
}

func TestCause(t *testing.T) {
	if got := cause(nil, "a warning\nerror: unknown option '--tools'\n"); got != "error: unknown option '--tools'" {
		t.Errorf("the cause is %q", got)
	}
	if got := cause(nil, ""); got != "" {
		t.Errorf("the cause is %q", got)
	}
}

func TestUsage(t *testing.T) {
	model, tokens := usage([]byte(`{"small":{"inputTokens":5,"outputTokens":1},"large":{"inputTokens":10,"outputTokens":9,"cacheReadInputTokens":100,"cacheCreationInputTokens":7}}`))
	if want := (agent.Tokens{Input: 122, Output: 10, Cached: 100, Total: 132}); model != "large" || tokens != want {
		t.Errorf("%s, %+v", model, tokens)
	}
	if model, tokens := usage(nil); model != "" || tokens != (agent.Tokens{}) {
		t.Errorf("%s, %+v", model, tokens)
	}
}

// The agent receives its login, and nothing that an agent sets for the programs that it
// starts.
func TestEnvironment(t *testing.T) {
	env := agent.Env{
		"HOME=/h", "ANTHROPIC_API_KEY=k", "CLAUDE_CONFIG_DIR=/c", "AWS_REGION=r",
		"CLAUDECODE=1", "CLAUDE_CODE_ENTRYPOINT=cli", "CLAUDE_CODE_SSE_PORT=1", "CLAUDE_CODE_SIMPLE=1", "CLAUDE_PATH=/p", "GITHUB_TOKEN=t", "IS_SANDBOX=1",
	}
	if got, want := environment(env), []string{"ANTHROPIC_API_KEY=k", "AWS_REGION=r", "CLAUDE_CONFIG_DIR=/c", "HOME=/h"}; !slices.Equal(got, want) {
		t.Errorf("it receives %q", got)
	}
}

// A command line takes the tools away, and keeps the temporary files apart.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	c, err := warmCommand(agent.Launch{Dir: "/project", TempDir: dir, Env: agent.Env{"HOME=/h"}})
	if err != nil {
		t.Fatal(err)
	}
	if args := strings.Join(c.Args, " "); !strings.Contains(args, "--tools Read,Grep,Glob --setting-sources  --strict-mcp-config --permission-mode dontAsk") {
		t.Errorf("the arguments are %q", c.Args)
	}
	if !slices.Contains(c.Env, "TMPDIR="+filepath.Join(dir, "tmp")) {
		t.Errorf("the environment is %q", c.Env)
	}
}

func TestVersions(t *testing.T) {
	agenttest.WantVersions(t, row, map[string]agent.Kind{"2.1.330": "", "3.0.0": "", "2.0.99": agent.TooOld, "": agent.NoVersion})
	_, err := row.Locate(agent.Source{Command: filepath.Join(t.TempDir(), "none")})
	agenttest.WantKind(t, err, agent.NotInstalled, "npm install")
}

func TestAccount(t *testing.T) {
	login := func(text string) string {
		home := t.TempDir()
		systest.WriteFile(t, filepath.Join(home, ".claude.json"), text)
		return home
	}
	env := func(home string, more ...string) agent.Env {
		return append(agent.Env{"HOME=" + home, "USERPROFILE=" + home}, more...)
	}
	none := t.TempDir()
	one := login(`{"numStartups":1,"oauthAccount":{"accountUuid":"a","organizationUuid":"o"}}`)
	of := make(map[string]string)
	for name, same := range map[string][]agent.Env{
		"a key":           {env(none, "ANTHROPIC_API_KEY=a"), env(one, "ANTHROPIC_API_KEY=a", "TERM=x")},
		"another key":     {env(none, "ANTHROPIC_API_KEY=b")},
		"elsewhere":       {env(none, "ANTHROPIC_API_KEY=a", "ANTHROPIC_BASE_URL=http://x")},
		"a login":         {env(one), env(one, "ANTHROPIC_MODEL=m")},
		"another login":   {env(login(`{"oauthAccount":{"accountUuid":"b","organizationUuid":"o"}}`))},
		"no login":        {env(none)},
		"another service": {env(one, "CLAUDE_CODE_USE_BEDROCK=1")},
		"no home":         {{}},
	} {
		first := account(same[0], "/")
		if other := of[first]; other != "" || len(first) != 32 {
			t.Errorf("%s is the account of %q: %q", name, other, first)
		}
		of[first] = name
		for _, e := range same {
			if account(e, "/elsewhere") != first {
				t.Errorf("%s: %q is another account", name, e)
			}
		}
	}
	// The state changes at each start.
	before := account(env(one), "/")
	systest.WriteFile(t, filepath.Join(one, ".claude.json"), `{"numStartups":2,"oauthAccount":{"accountUuid":"a","organizationUuid":"o"}}`)
	if account(env(one), "/") != before {
		t.Error("another start is another account")
	}
}

func TestWritable(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	for _, test := range []struct {
		env  agent.Env
		want []string
	}{
		{agent.Env{"HOME=" + home, "USERPROFILE=" + home}, []string{filepath.Join(home, ".claude"), filepath.Join(home, ".claude.json")}},
		{agent.Env{"HOME=" + home, "CLAUDE_CONFIG_DIR=" + dir}, []string{dir, filepath.Join(dir, ".claude.json")}},
		{agent.Env{}, nil},
	} {
		if got := Writable(test.env); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q", test.env, got)
		}
	}
}
