package settings

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/hostile"
	"pollux/internal/sys/systest"
)

// home creates a home for the CLI and a project. The names of files start with
// "home/" or "project/".
func home(t *testing.T, files map[string]string) (project string) {
	t.Helper()
	root := systest.Dir(t)
	project = filepath.Join(root, "project")
	inJSON := strings.ReplaceAll(root, `\`, `\\`)
	for name, text := range files {
		path := filepath.Join(root, name)
		systest.WriteFile(t, path, strings.ReplaceAll(text, "ROOT", inJSON))
	}
	systest.MakeDir(t, project)
	t.Setenv("GEMINI_CLI_HOME", filepath.Join(root, "home"))
	t.Setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", filepath.Join(root, "system", "settings.json"))
	for _, key := range []string{"GEMINI_CLI_TRUST_WORKSPACE", "GEMINI_RESTRICTED_MODE", "GEMINI_CLI_TRUSTED_FOLDERS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"} {
		t.Setenv(key, "")
	}
	return project
}

const (
	user      = "home/.gemini/settings.json"
	workspace = "project/.gemini/settings.json"
	trusted   = "home/.gemini/trustedFolders.json"
	system    = "system/settings.json"
)

// Each environment has its own settings.
func TestLoadOfAnEnvironment(t *testing.T) {
	project := home(t, map[string]string{
		user: `{"ide":{"enabled":false}}`, "theirs/.gemini/settings.json": `{"ide":{"enabled":true}}`, trusted: `{"ROOT/project":"TRUST_FOLDER"}`,
	})
	other := filepath.Join(filepath.Dir(project), "theirs")
	theirs := agent.Env{"HOME=" + other, "USERPROFILE=" + other, "GEMINI_CLI_SYSTEM_SETTINGS_PATH=/none"}
	for name, tt := range map[string]struct {
		env   agent.Env
		on    bool
		trust Trust
	}{
		"this process": {nil, false, Trusted},
		"another one":  {theirs, true, Unknown},
		"a variable":   {append(theirs, "GEMINI_CLI_TRUST_WORKSPACE=false"), true, Untrusted},
	} {
		s, err := Load(tt.env, project)
		if on, _ := s.IDEMode(); err != nil || on != tt.on || s.Trust != tt.trust {
			t.Errorf("%s: IDE mode %v, trust %v, %v", name, on, s.Trust, err)
		}
	}
}

func TestLoad(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		on    bool
		by    string
		trust Trust
		auth  string
		bad   string // in a layer's error
	}{
		{name: "nothing", trust: Unknown},
		{name: "on", files: map[string]string{user: `{"ide":{"enabled":true}}`}, on: true, by: "user"},
		{name: "off", files: map[string]string{user: `{"ide":{"enabled":false}}`}, by: "user"},
		{name: "empty", files: map[string]string{user: " \n"}, bad: "empty"},
		{name: "a comment at the end", files: map[string]string{user: `{"ide":{"enabled":true}} // why`}, on: true, by: "user"},
		{name: "names are exact", files: map[string]string{user: `{"IDE":{"Enabled":true}}`}},
		{name: "the last of two counts", files: map[string]string{user: `{"ide":{"enabled":true},"ide":{}}`}},
		{name: "comments", files: map[string]string{user: "{// why\n\"ide\":{\"enabled\":true}}"}, on: true, by: "user"},
		{name: "a trailing comma", files: map[string]string{user: `{"ide":{"enabled":true,}}`}, bad: "comma"},
		{name: "broken", files: map[string]string{user: `{"ide"`}, bad: "line 1"},
		{name: "no object", files: map[string]string{user: `[]`}, bad: "object"},
		{name: "an untrusted folder's do not count", files: map[string]string{user: `{"ide":{"enabled":true}}`, workspace: `{"ide":{"enabled":false}}`}, on: true, by: "user"},
		{name: "a trusted folder's do", trust: Trusted, files: map[string]string{user: `{"ide":{"enabled":true}}`, workspace: `{"ide":{"enabled":false}}`, trusted: `{"ROOT/project":"TRUST_FOLDER"}`}, by: "workspace"},
		{name: "the parent is trusted", trust: Trusted, files: map[string]string{trusted: `{"ROOT/other":"TRUST_PARENT"}`}},
		{name: "the longest rule counts", trust: Untrusted, files: map[string]string{trusted: `{"ROOT":"TRUST_FOLDER","ROOT/project":"DO_NOT_TRUST"}`}},
		{name: "a name that only begins alike", files: map[string]string{trusted: `{"ROOT/proj":"TRUST_FOLDER"}`}},
		{name: "folder trust is off", trust: Trusted, files: map[string]string{user: `{"security":{"folderTrust":{"enabled":false},"auth":{"selectedType":"vertex-ai"}}}`}, auth: "vertex-ai"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Load(nil, home(t, tt.files))
			if err != nil {
				t.Fatal(err)
			}
			on, by := s.IDEMode()
			auth, _ := s.Auth()
			name, bad := "", ""
			if by != nil {
				name = by.Name
			}
			for _, l := range s.Layers {
				if l.Err != nil {
					bad = l.Err.Error()
				}
			}
			if on != tt.on || name != tt.by || s.Trust != tt.trust || auth != tt.auth || s.TrustErr != nil {
				t.Errorf("IDE mode %v by %q, trust %v (%v), auth %q; want %v by %q, %v, %q", on, name, s.Trust, s.TrustErr, auth, tt.on, tt.by, tt.trust, tt.auth)
			}
			if (bad == "") != (tt.bad == "") || !strings.Contains(bad, tt.bad) {
				t.Errorf("error %q, want %q", bad, tt.bad)
			}
		})
	}
}

func TestTrustedFoldersMustBeRight(t *testing.T) {
	for _, text := range []string{`{"/":"MAYBE"}`, `{`, `[]`} {
		s, err := Load(nil, home(t, map[string]string{trusted: text}))
		if err != nil || s.TrustErr == nil {
			t.Errorf("%s: %v, %v", text, err, s.TrustErr)
		}
	}
}

func TestTrustByTheEnvironment(t *testing.T) {
	dir := home(t, map[string]string{trusted: `{"/":"TRUST_FOLDER"}`})
	t.Setenv("GEMINI_CLI_TRUST_WORKSPACE", "false")
	if s, _ := Load(nil, dir); s.Trust != Untrusted || s.TrustFrom != "GEMINI_CLI_TRUST_WORKSPACE" {
		t.Errorf("%v by %s", s.Trust, s.TrustFrom)
	}
}

// The system's settings override the user's, but only if no user except root can
// change them.
func TestSystemSettings(t *testing.T) {
	files := map[string]string{user: `{"ide":{"enabled":true}}`, system: `{"ide":{"enabled":false}}`}
	dir := home(t, files)
	// The user, or everybody, can write to a temporary directory.
	s, err := Load(nil, dir)
	if on, by := s.IDEMode(); err != nil || !on || by.Name != "user" {
		t.Errorf("in a temporary directory: IDE mode %v, %v", on, err)
	}
	owner := map[bool]string{true: "belong to the Administrators", false: "belong to root"}[runtime.GOOS == "windows"]
	if top := s.Layers[len(s.Layers)-1]; top.Name != "system" || !strings.Contains(top.Skipped, owner) {
		t.Errorf("in a temporary directory: %+v", top)
	}
	if runtime.GOOS == "windows" {
		t.Skip("only an administrator can make such files, and Wine keeps no owners")
	}
	systest.NeedRoot(t)
	etc, err := os.MkdirTemp("/var", "pollux-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(etc) })
	path := filepath.Join(etc, "settings.json")
	if err := os.Chmod(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	systest.WriteFile(t, path, files[system])
	t.Setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", path)
	s, err = Load(nil, dir)
	if on, by := s.IDEMode(); err != nil || on || by.Name != "system" {
		t.Errorf("IDE mode %v, %v", on, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	s, err = Load(nil, dir)
	if on, by := s.IDEMode(); err != nil || !on || by.Name != "user" || s.Layers[1].Skipped == "" {
		t.Errorf("with a file that all can write: IDE mode %v, %v, %+v", on, err, s.Layers)
	}
}

// On Windows, all users may create directories in the root of a drive: Pollux ignored the
// administrator's settings, which the CLI read.
func TestGuards(t *testing.T) {
	got := guards(systest.Abs("/etc/gemini-cli/settings.json"))
	want := []string{systest.Abs("/etc/gemini-cli/settings.json"), systest.Abs("/etc/gemini-cli"), systest.Abs("/etc")}
	if runtime.GOOS != "windows" {
		want = append(want, "/")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A user who has turned the IDE mode on or off has decided.
func TestIDEModeSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".gemini", "settings.json")
	for text, want := range map[string]bool{
		"": false, `{"ide": {"hasSeenNudge": true}}`: false, `{"ide": {"enabled": true}}`: true, `{"ide": {"enabled": false}}`: true,
	} {
		if text != "" {
			systest.WriteFile(t, path, text)
		}
		if got, err := IDEModeSet(path); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		os.Remove(path)
	}
	systest.WriteFile(t, path, "{oops")
	_, err := IDEModeSet(path)
	systest.WantError(t, err, "left unchanged")
}

// The settings belong to the user: only two values change, in the style of the file.
func TestEnableIDEKeepsStyle(t *testing.T) {
	for _, tt := range []struct{ name, before, after string }{
		{"empty", "", "{\n  \"ide\": {\n    \"enabled\": true,\n    \"hasSeenNudge\": true\n  }\n}\n"},
		{"indented by four", "{\n    \"ui\": {}\n}\n",
			"{\n    \"ui\": {},\n    \"ide\": {\n        \"enabled\": true,\n        \"hasSeenNudge\": true\n    }\n}\n"},
		{"tabs, a comment, a trailing comma", "{\n\t\"a\": 1, // why\n\t\"ide\": {\n\t\t\"x\": 1, // not\n\t},\n}\n",
			"{\n\t\"a\": 1, // why\n\t\"ide\": {\n\t\t\"x\": 1, // not\n\t\t\"enabled\": true,\n\t\t\"hasSeenNudge\": true,\n\t},\n}\n"},
		{"one line", `{"a":1}`, `{"a":1,"ide":{"enabled":true,"hasSeenNudge":true}}`},
		{"one line with spaces", `{ "a": 1, "b": 2 }`, `{ "a": 1, "b": 2, "ide": {"enabled": true, "hasSeenNudge": true} }`},
		{"one line with one space", `{ "a": 1 }`, `{ "a": 1, "ide": {"enabled": true, "hasSeenNudge": true} }`},
		{"ide on one line", "{\n  \"ide\": {\"x\": 1}\n}", "{\n  \"ide\": {\"x\": 1, \"enabled\": true, \"hasSeenNudge\": true}\n}"},
		{"with one of the values", `{"ide": {"hasSeenNudge": true}}`, `{"ide": {"hasSeenNudge": true, "enabled": true}}`},
		{"twice", `{"ide":1,"ide":{"x":1}}`, `{"ide":1,"ide":{"x":1,"enabled":true,"hasSeenNudge":true}}`},
		{"CR LF", "{\r\n  \"a\": 1\r\n}\r\n",
			"{\r\n  \"a\": 1,\r\n  \"ide\": {\r\n    \"enabled\": true,\r\n    \"hasSeenNudge\": true\r\n  }\r\n}\r\n"},
	} {
		path := filepath.Join(t.TempDir(), "settings.json")
		systest.WriteFile(t, path, tt.before)
		if err := EnableIDE(path); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if after, _ := os.ReadFile(path); string(after) != tt.after {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, after, tt.after)
		}
	}
	path := filepath.Join(t.TempDir(), "settings.json")
	os.WriteFile(path, []byte(`{"ide": true}`), 0o600)
	systest.WantError(t, EnableIDE(path), "correct it first") // ide is not an object
}

// A FIFO blocked the reader, a device or a large file used up the memory, and
// brackets overflowed the stack.
func TestHostileFiles(t *testing.T) {
	for _, kind := range hostile.Kinds {
		t.Run(kind, func(t *testing.T) {
			project := home(t, map[string]string{user: `{"ide":{"enabled":true}}`})
			hostile.Plant(t, kind, filepath.Join(project, ".gemini", "settings.json"))
			t.Setenv("GEMINI_CLI_TRUST_WORKSPACE", "true")
			s, err := Load(nil, project)
			if err != nil {
				t.Fatal(err)
			}
			last := s.Layers[len(s.Layers)-1]
			if last.Name != "workspace" || last.Err == nil {
				t.Errorf("the workspace's settings: %+v", last)
			}
			if on, _ := s.IDEMode(); !on {
				t.Error("the user's settings do not count")
			}
		})
		t.Run(kind+" for the trusted folders", func(t *testing.T) {
			project := home(t, nil)
			hostile.Plant(t, kind, filepath.Join(filepath.Dir(project), trusted))
			s, err := Load(nil, project)
			if err != nil || s.TrustErr == nil || s.Trust != Unknown {
				t.Errorf("%+v, %v", s, err)
			}
		})
		t.Run(kind+" for the user's own", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.json")
			hostile.Plant(t, kind, path)
			_, err := IDEModeSet(path)
			systest.WantError(t, err, path)
			if err := EnableIDE(path); err == nil {
				t.Error("EnableIDE wrote it")
			}
		})
	}
}

// The file may later hold the keys of MCP servers.
func TestEnableIDEMakesPrivateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	if err := EnableIDE(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
