package gemini

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

func BenchmarkAccount(b *testing.B) {
	env := agent.Env(os.Environ())
	for b.Loop() {
		account(env, b.TempDir())
	}
}

func TestAccount(t *testing.T) {
	one, two := t.TempDir(), t.TempDir() // homes
	project := filepath.Join(one, "project")
	write := func(text string, name ...string) {
		path := filepath.Join(name...)
		systest.WriteFile(t, path, text)
	}
	env := func(home string, more ...string) agent.Env {
		return append(agent.Env{"HOME=" + home, "USERPROFILE=" + home, "GEMINI_CLI_SYSTEM_SETTINGS_PATH=/none"}, more...)
	}
	link := filepath.Join(t.TempDir(), "link")
	if systest.TryLink(one, link) != nil {
		link = one
	}
	selected := t.TempDir()
	write(`{"security":{"auth":{"selectedType":"gemini-api-key"}}}`, selected, ".gemini", "settings.json")
	google := t.TempDir()
	write(`{"security":{"auth":{"selectedType":"oauth-personal"}}}`, google, ".gemini", "settings.json")
	write("export GEMINI_API_KEY='in-a-file'\n", project, ".env")
	write("GEMINI_API_KEY=in-another-file\n", project, "inner", ".env")
	vertex := []string{"GOOGLE_GENAI_USE_VERTEXAI=true", "GOOGLE_CLOUD_LOCATION=l"}
	type client struct {
		env agent.Env
		dir string
	}
	// The clients of one account share it, and no others.
	names := make(map[string]string)
	for name, shared := range map[string][]client{
		"a key": {
			{env(one, "GEMINI_API_KEY=a"), "/"}, {env(two, "GEMINI_API_KEY=a", "TMUX=1", "GEMINI_MODEL=m"), two},
			{env(selected, "GEMINI_API_KEY=a"), "/"}, {env(one, "GEMINI_API_KEY=a"), project},
		},
		"another key":              {{env(one, "GEMINI_API_KEY=b"), "/"}, {env(two, "GEMINI_API_KEY=a", "GEMINI_API_KEY=b"), "/"}},
		"the key elsewhere":        {{env(one, "GEMINI_API_KEY=a", "GOOGLE_GEMINI_BASE_URL=http://x"), "/"}, {env(selected, "GEMINI_API_KEY=a", "GOOGLE_GEMINI_BASE_URL=http://x"), "/"}},
		"a key in a file":          {{env(one), project}, {env(two, "GEMINI_API_KEY=in-a-file"), "/"}},
		"a key in another":         {{env(one), filepath.Join(project, "inner")}, {env(one), filepath.Join(project, "inner", "most")}},
		"a key in a keychain":      {{env(selected), "/"}},
		"a home":                   {{env(one), "/"}, {env(one), two}, {env(link), "/"}, {env(two, "GEMINI_CLI_HOME="+one), "/"}},
		"another home":             {{env(two), "/"}},
		"a sign-in":                {{env(google), "/"}, {env(google, "GEMINI_API_KEY=unused"), "/"}},
		"a sign-in with a project": {{env(google, "GOOGLE_CLOUD_PROJECT=p"), "/"}},
		"Vertex AI": {
			{env(one, append(vertex, "GOOGLE_CLOUD_PROJECT=p")...), "/"}, {env(two, append(vertex, "GOOGLE_CLOUD_PROJECT=p")...), "/"},
		},
		"another project":   {{env(one, append(vertex, "GOOGLE_CLOUD_PROJECT=q")...), "/"}},
		"a key for a cloud": {{env(one, append(vertex, "GOOGLE_API_KEY=a")...), "/"}, {env(two, append(vertex, "GOOGLE_API_KEY=a")...), "/"}},
		"no home":           {{agent.Env{}, "/"}},
	} {
		first := account(shared[0].env, shared[0].dir)
		if other := names[first]; other != "" {
			t.Errorf("%s is the same account as %s", name, other)
		}
		names[first] = name
		for _, c := range shared {
			if got := account(c.env, c.dir); got != first {
				t.Errorf("%s: %q in %s is another account", name, c.env, c.dir)
			}
		}
	}
	if got := account(env(one, "GEMINI_API_KEY=a"), "/"); len(got) != 32 || strings.Trim(got, "0123456789abcdef") != "" {
		t.Errorf("the account is %q", got)
	}
}
