package gemini

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/paths"
	"pollux/internal/sys/systest"
)

// The home for change mode looks like the user's. Nothing that is written to it
// reaches the user's home, except renewed credentials.
func TestPrivateHome(t *testing.T) {
	systest.SetHome(t, t.TempDir())
	t.Setenv("GEMINI_CLI_HOME", "")
	theirs, ours := filepath.Join(os.Getenv("HOME"), ".gemini"), t.TempDir()
	systest.MakeDir(t, filepath.Join(theirs, "tmp"))
	for _, name := range []string{"settings.json", "GEMINI.md", "oauth_creds.json", ".env", "mcp-oauth-tokens.json"} {
		systest.WriteFile(t, filepath.Join(theirs, name), name)
	}
	link := filepath.Join(t.TempDir(), "link")
	links := systest.TryLink(os.Getenv("HOME"), link) == nil
	unlinked, err := privateHome(nil, ours)
	if err != nil || links && len(unlinked) > 0 {
		t.Fatal(unlinked, err)
	}
	check := func(t *testing.T, same bool, names ...string) {
		t.Helper()
		for _, name := range names {
			if info, err := os.Lstat(filepath.Join(ours, ".gemini", name)); err != nil || same != (info.Mode()&os.ModeSymlink != 0) {
				t.Errorf("%s is a copy: %v, %v", name, !same, err)
			}
			systest.WriteFile(t, filepath.Join(ours, ".gemini", name), "changed")
			data, err := os.ReadFile(filepath.Join(theirs, name))
			if want := map[bool]string{true: "changed", false: name}[same]; err != nil || string(data) != want {
				t.Errorf("the user's %s is %q, %v", name, data, err)
			}
		}
	}
	check(t, false, "settings.json", "GEMINI.md")
	for dir, near := range map[string]bool{
		os.Getenv("HOME"): true, theirs: true, filepath.Join(theirs, "tmp"): true, filepath.VolumeName(ours) + string(filepath.Separator): true,
		filepath.Join(os.Getenv("HOME"), "project"): false, ours: false, filepath.Join(link, ".gemini"): links,
	} {
		if nearHome(nil, dir) != near {
			t.Errorf("%s is near the CLI's home: %v", dir, !near)
		}
	}
	t.Run("credentials", func(t *testing.T) {
		systest.Link(t, theirs, filepath.Join(t.TempDir(), "link")) // or skip the test
		check(t, true, "oauth_creds.json", ".env", "mcp-oauth-tokens.json")
	})
}

// What a process reads, and what it may change, depends on the environment of its
// source and not on Pollux's.
func TestFilesOfASource(t *testing.T) {
	ours, theirs := t.TempDir(), t.TempDir()
	systest.SetHome(t, ours)
	root := filepath.VolumeName(ours) + string(filepath.Separator)
	path := func(name string) string { return root + filepath.FromSlash(name) }
	from := agent.Source{Env: agent.Env{
		"HOME=" + theirs, "USERPROFILE=" + theirs,
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH=" + path("s/settings.json"), "GEMINI_CLI_TRUSTED_FOLDERS_PATH=" + path("t/trusted.json"),
	}}
	files := inputs(from, agent.Program{Path: path("bin/gemini")}, path("work"))
	for _, want := range []string{
		path("bin/gemini"), path("s/settings.json"), path("s/system-defaults.json"), path("t/trusted.json"),
		path("work/.gemini/settings.json"), path("work/.env"),
		filepath.Join(theirs, ".gemini", "settings.json"), filepath.Join(theirs, ".env"),
	} {
		if !slices.Contains(files, want) {
			t.Errorf("no %s in %q", want, files)
		}
	}
	if i := slices.IndexFunc(files, func(path string) bool { return paths.Contains(ours, path) }); i >= 0 {
		t.Errorf("%s belongs to another source", files[i])
	}
	current := agent.Program{Version: "0.61.0"}
	for dir, possible := range map[string]bool{
		ours: true, filepath.Join(ours, ".gemini"): true, theirs: false, filepath.Join(theirs, ".gemini"): false, filepath.Join(theirs, "x"): true,
	} {
		if err := canChange(from, current, dir); (err == nil) != possible {
			t.Errorf("change mode in %s: %v", dir, err)
		}
	}
	memory := filepath.Join(theirs, ".gemini", "GEMINI.md")
	systest.WriteFile(t, memory, "theirs")
	tmp := t.TempDir()
	command, err := row.Warm.Command(agent.Launch{Dir: path("work"), TempDir: tmp, Change: true, Env: from.Env})
	if err != nil {
		t.Fatal(err)
	}
	systest.WantFile(t, filepath.Join(tmp, "home", ".gemini", "GEMINI.md"), "theirs")
	if env := agent.Env(command.Env); env.Get("HOME") != theirs || env.Get("GEMINI_CLI_HOME") != filepath.Join(tmp, "home") {
		t.Errorf("the environment is %q", command.Env)
	}
}

// On Windows most users cannot create links, and change mode copied their
// credentials.
func TestPrivateHomeWithoutLinks(t *testing.T) {
	systest.SetHome(t, t.TempDir())
	t.Setenv("GEMINI_CLI_HOME", "")
	home := t.TempDir()
	theirs, ours := filepath.Join(os.Getenv("HOME"), ".gemini"), filepath.Join(home, ".gemini")
	for _, dir := range []string{theirs, ours} {
		systest.MakeDir(t, dir)
	}
	secrets := []string{".env", "oauth_creds.json"}
	for _, name := range append([]string{"settings.json"}, secrets...) {
		systest.WriteFile(t, filepath.Join(theirs, name), name)
	}
	for _, name := range secrets { // these files block the links
		systest.WriteFile(t, filepath.Join(ours, name), "")
	}
	systest.SkipOnWine(t, "it reports that it has made symbolic links, and makes none")
	unlinked, err := privateHome(nil, home)
	if err != nil || !slices.Equal(unlinked, secrets) {
		t.Errorf("not linked: %v, %v", unlinked, err)
	}
	for name, want := range map[string]string{".env": "", "oauth_creds.json": "", "settings.json": "settings.json"} {
		systest.WantFile(t, filepath.Join(ours, name), want)
	}
}

// A CLI without credentials, because they could not be linked, explains what to
// do.
func TestWarmWithoutCredentials(t *testing.T) {
	failure := Agent().Warm.Failure
	refused := func(unlinked ...string) error { return failure(nil, -32000, "Authentication required.", unlinked) }
	agenttest.WantKind(t, refused(), agent.Auth, "Authentication required")
	agenttest.WantKind(t, refused(".env", "oauth_creds.json"), agent.Unlinked,
		"Authentication required", ".env, oauth_creds.json", "Developer Mode", "GEMINI_API_KEY", "GEMINI_RUNNER=spawn")
	agenttest.WantKind(t, failure(nil, 429, "slow down", nil), agent.QuotaMinute)
}

// A CLI that takes too long to print its version is not called too old.
func TestLateVersion(t *testing.T) {
	err := ReadOnly(agent.Source{}, agent.Program{Path: "/bin/gemini", Late: true})
	agenttest.WantKind(t, err, agent.NoVersion, "/bin/gemini --version took longer than 15s")
}

// The CLI may change its own directories and the compile cache, and in change mode only the
// credentials and the cache. They exist when it starts: it could not make them.
func TestWritable(t *testing.T) {
	home, other := paths.Real(t.TempDir()), paths.Real(t.TempDir())
	env := agent.Env{"HOME=" + home, "USERPROFILE=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, "cache")}
	cache, own := filepath.Join(home, "cache", "pollux", "node-compile-cache"), filepath.Join(home, ".gemini")
	moved := append(slices.Clone(env), "GEMINI_CLI_HOME="+other, "NODE_COMPILE_CACHE="+filepath.Join(other, "node"))
	get := func(env agent.Env, dir string, change bool) []string {
		c, err := acpCommand(agent.Launch{Dir: dir, TempDir: t.TempDir(), Env: env, Change: change})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range c.Writable {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
		return slices.Compact(c.Writable)
	}
	if got, want := get(env, t.TempDir(), false), []string{cache, own}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, name := range []string{"settings.json", "oauth_creds.json"} {
		systest.WriteFile(t, filepath.Join(own, name), "{}")
	}
	if got, want := get(env, t.TempDir(), true), []string{cache, filepath.Join(own, "oauth_creds.json")}; !slices.Equal(got, want) {
		t.Errorf("in change mode %q, want %q", got, want)
	}
	if got, want := get(env, home, false), []string{own}; !slices.Equal(got, want) { // no cache in a workspace
		t.Errorf("at home %q, want %q", got, want)
	}
	if got, want := get(moved, t.TempDir(), false), []string{filepath.Join(other, "node"), filepath.Join(other, ".gemini"), own}; !slices.Equal(got, want) {
		t.Errorf("with other variables %q, want %q", got, want)
	}
}

// The CLI's Node.js keeps compiled code in the user's cache, but not in the
// workspace, and not if the user has chosen another directory. An old cache is
// removed.
func TestCompileCache(t *testing.T) {
	home, work := paths.Real(t.TempDir()), paths.Real(t.TempDir())
	own := filepath.Join(home, "cache", "pollux", "node-compile-cache")
	base := agent.Env{"HOME=" + home, "USERPROFILE=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, "cache")}
	for name, test := range map[string]struct {
		env  agent.Env
		dir  string
		want []string
	}{
		"its own":           {base, work, []string{"NODE_COMPILE_CACHE=" + own}},
		"the user's":        {append(base[:len(base):len(base)], "NODE_COMPILE_CACHE=/x"), work, []string{"NODE_COMPILE_CACHE=/x"}},
		"in the workspace":  {base, home, nil},
		"a relative folder": {agent.Env{"HOME=" + home, "USERPROFILE=" + home, "XDG_CACHE_HOME=x"}, home, nil},
	} {
		c, err := acpCommand(agent.Launch{Dir: test.dir, TempDir: t.TempDir(), Env: test.env})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, kv := range c.Env {
			if strings.HasPrefix(kv, "NODE_COMPILE_CACHE=") {
				got = append(got, kv)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	systest.MakeDir(t, filepath.Join(own, "v22"))
	for age, want := range map[time.Duration]bool{0: true, compileCacheTTL + time.Hour: false} {
		if err := os.Chtimes(own, time.Now(), time.Now().Add(-age)); err != nil && want {
			t.Fatal(err)
		}
		compileCache(agent.Launch{Dir: work, Env: base})
		if _, err := os.Stat(own); (err == nil) != want {
			t.Errorf("after %s: %v", age, err)
		}
		systest.MakeDir(t, own)
	}
}
