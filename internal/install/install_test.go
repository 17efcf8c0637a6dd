package install

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"pollux/internal/hostile"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

func TestInstallKeepsWhatIsThere(t *testing.T) {
	entry := serverEntry{Type: "stdio", Command: "/bin/pollux", Args: []string{"bridge"}}
	for name, test := range map[string][2]string{
		"none":   {"", "{\n  \"mcpServers\": {\n    \"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"/bin/pollux\",\n      \"args\": [\n        \"bridge\"\n      ]\n    }\n  }\n}\n"},
		"others": {"{\n    // mine\n    \"mcpServers\": {\n        \"x\": {\"command\": \"x\"}, // x\n    },\n    \"z\": 1.50\n}", "{\n    // mine\n    \"mcpServers\": {\n        \"x\": {\"command\": \"x\"}, // x\n        \"pollux\": {\n            \"type\": \"stdio\",\n            \"command\": \"/bin/pollux\",\n            \"args\": [\n                \"bridge\"\n            ]\n        },\n    },\n    \"z\": 1.50\n}"},
		"an old": {
			"{\n  \"mcpServers\": {\n    \"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"old\",\n      \"args\": [\"bridge\", \"--log\", \"debug\"],\n      \"env\": {\"GEMINI_API_KEY\": \"k\"}, // mine\n      \"timeout\": 600\n    }\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"/bin/pollux\",\n      \"args\": [\"bridge\", \"--log\", \"debug\"],\n      \"env\": {\"GEMINI_API_KEY\": \"k\"}, // mine\n      \"timeout\": 600\n    }\n  }\n}",
		},
		"in line": {`{"a":1}`, "{\"a\":1,\n  \"mcpServers\": {\n    \"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"/bin/pollux\",\n      \"args\": [\n        \"bridge\"\n      ]\n    }\n  }\n}"},
	} {
		got, err := changeJSON(test[0], "mcpServers", entry, false)
		if err != nil || got != test[1] {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, test[1])
		}
		if again, err := changeJSON(got, "mcpServers", entry, false); err != nil || again != got {
			t.Errorf("%s: a second time: %v\n%s", name, err, again)
		}
		gone, err := changeJSON(got, "mcpServers", entry, true)
		if err != nil || strings.Contains(gone, "pollux") {
			t.Errorf("%s: removed: %v\n%s", name, err, gone)
		}
		if std, err := hujson.Standardize([]byte(gone)); err != nil || !json.Valid(std) || json.Valid([]byte(test[0])) && !json.Valid([]byte(gone)) {
			t.Errorf("%s: removed, it is not JSON: %s", name, gone)
		}
	}
	// Other entries and comments are kept when an entry is added or removed.
	for _, before := range []string{
		"{\n  \"mcpServers\": {\n    \"x\": {} // first\n  }\n}",
		"{\n  \"mcpServers\": {\n    \"x\": {}, // first\n    /* none */\n  }\n}",
		"{\n  \"mcpServers\": {\n    \"x\": {}\n    // last\n  }\n}",
	} {
		in, err := changeJSON(before, "mcpServers", entry, false)
		if err != nil {
			t.Fatal(err)
		}
		out, err := changeJSON(in, "mcpServers", entry, true)
		if err != nil || strings.Join(strings.Fields(out), " ") != strings.Join(strings.Fields(before), " ") {
			t.Errorf("%v\n%s\nwith it\n%s\nand out\n%s", err, before, in, out)
		}
	}
	for before, want := range map[string]string{
		`{"mcpServers": {"x": {} , "pollux": {"command": "y"}}}`:               `{"mcpServers": {"x": {}}}`,
		"{\"mcpServers\": {\"x\": {}, // about x\n\"pollux\": {}}}":            "{\"mcpServers\": {\"x\": {} // about x}}",
		"{\"mcpServers\": {\"pollux\": {}, // about it\n\"x\": {}}}":           "{\"mcpServers\": { // about it\n\"x\": {}}}",
		"{\"mcpServers\": {\n  \"pollux\": {\"command\": \"y\"}\n}, \"a\": 1}": "{\"mcpServers\": {\n}, \"a\": 1}",
		`{"mcpServers": {"pollux": {}, "x": {}, "pollux": {}}}`:                `{"mcpServers": { "x": {}}}`,
		"": "", // there is no file
	} {
		got, err := changeJSON(before, "mcpServers", entry, true)
		if err != nil || got != want && !strings.Contains(before, "//") {
			t.Errorf("%s without it is %s, %v", before, got, err)
		}
		if i := strings.Index(before, "// about"); i >= 0 && !strings.Contains(got, before[i:i+10]) {
			t.Errorf("the comment of %s is gone: %s", before, got)
		}
		if _, err := hujson.Parse([]byte(got)); err != nil && want != "" {
			t.Errorf("%s is not valid: %v", got, err)
		}
	}
	// A byte order mark and line endings are kept.
	c := Client{key: "mcpServers"}
	got, err := c.change("linux", "\ufeff{\r\n  \"a\": 1\r\n}\r\n", "pollux", false)
	if err != nil || !strings.HasPrefix(got, "\ufeff{\r\n") || strings.Count(got, "\n") != strings.Count(got, "\r\n") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := changeJSON(`{"mcpServers":{"pollux":{"url":"http://x"}}}`, "mcpServers", entry, false); err == nil || !strings.Contains(err.Error(), "rename or remove") {
		t.Errorf("an entry with a url: %v", err)
	}
	desktop := serverEntry{Command: "/bin/pollux", Args: []string{"bridge"}, Env: map[string]string{"PATH": "/bin"}}
	got, err = changeJSON(`{"mcpServers":{"pollux":{"command":"/bin/pollux","args":["bridge"],"env":{"GEMINI_API_KEY":"k"}}}}`, "mcpServers", desktop, false)
	if err != nil || !strings.Contains(got, `"GEMINI_API_KEY":"k"`) || !strings.Contains(got, `"PATH": "/bin"`) {
		t.Errorf("a PATH that is missing: %s, %v", got, err)
	}
	for _, bad := range []string{"{", "[]", `{"mcpServers":[]}`} {
		if _, err := changeJSON(bad, "mcpServers", entry, false); err == nil || !strings.Contains(err.Error(), "correct it first") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestInstallCodex(t *testing.T) {
	ours := "[mcp_servers.pollux]\ncommand = \"/bin/pollux\"\nargs = [\"bridge\"]\ntool_timeout_sec = 1800\n"
	for before, want := range map[string]string{
		"":                             ours,
		"# mine\nmodel = \"x\"\n":      "# mine\nmodel = \"x\"\n\n" + ours,
		"[mcp_servers.x]\na = 1 # x\n": "[mcp_servers.x]\na = 1 # x\n\n" + ours,
		"[mcp_servers.pollux]\ncommand = \"old\" # mine\ntool_timeout_sec = 9\n[mcp_servers.pollux.env]\nA = \"1\"\n\n# about z\n[z]\nb = 2\n": "[mcp_servers.pollux]\nargs = [\"bridge\"]\ncommand = \"/bin/pollux\" # mine\ntool_timeout_sec = 9\n[mcp_servers.pollux.env]\nA = \"1\"\n\n# about z\n[z]\nb = 2\n",
		ours: ours,
	} {
		got, err := changeTOML(before, "/bin/pollux", nil, false)
		if err != nil || got != want {
			t.Errorf("%q becomes %q, %v; want %q", before, got, err, want)
		}
		gone, err := changeTOML(got, "/bin/pollux", nil, true)
		if err != nil || strings.Contains(gone, "pollux") || strings.Contains(before, "# about z") && gone != "\n# about z\n[z]\nb = 2\n" {
			t.Errorf("removed: %q, %v", gone, err)
		}
	}
	for before, want := range map[string]string{
		"a = ": "correct it first",
		"mcp_servers = { pollux = { command = \"x\" }, y = {} }\n": "by hand",
		"[mcp_servers]\npollux = { command = \"x\" }\n":            "by hand",
		"mcp_servers.pollux.command = \"x\"\n":                     "by hand",
	} {
		for _, remove := range []bool{false, true} {
			if got, err := changeTOML(before, "/bin/pollux", nil, remove); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, removed %v: %q, %v", before, remove, got, err)
			}
		}
	}
	// An inline table cannot be extended.
	if got, err := changeTOML("mcp_servers = { y = {} }\n", "/bin/pollux", nil, false); err == nil {
		t.Errorf("became %q", got)
	}
}

// Each client gets the entry that its own documentation asks for.
func TestEntries(t *testing.T) {
	const plain = `{"mcpServers": {"pollux": {"command": "pollux", "args": ["bridge"]}}}`
	wants := map[string]string{
		"claude-code":    `{"mcpServers": {"pollux": {"type": "stdio", "command": "pollux", "args": ["bridge"]}}}`,
		"codex":          "[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\ntool_timeout_sec = 1800\n",
		"cursor":         plain,
		"gemini":         plain,
		"qwen":           plain,
		"copilot":        `{"mcpServers": {"pollux": {"type": "local", "command": "pollux", "args": ["bridge"], "tools": ["*"]}}}`,
		"opencode":       `{"mcp": {"pollux": {"type": "local", "command": ["pollux", "bridge"]}}}`,
		"vscode":         `{"servers": {"pollux": {"type": "stdio", "command": "pollux", "args": ["bridge"], "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}}}}`,
		"claude-desktop": `{"mcpServers": {"pollux": {"command": "pollux", "args": ["bridge"], "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}}}}`,
	}
	t.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	for _, c := range Clients {
		text, err := c.change("linux", "", "pollux", false)
		if err != nil {
			t.Fatal(err)
		}
		if !same(t, c, wants[c.Name], text) {
			t.Errorf("%s gets\n%s\nwant\n%s", c.Title, text, wants[c.Name])
		}
	}
}

// Clients that keep variables from their servers get the names of those that the bridge needs,
// and never a value. A name that is missing in an older entry is added.
func TestEntriesNameVariables(t *testing.T) {
	variables := []string{"ANTHROPIC_API_KEY", "HOME", "HTTPS_PROXY", "OPENAI_BASE_URL", "PATH"}
	for _, v := range variables {
		t.Setenv(v, "secret")
	}
	for _, tt := range []struct{ client, old, want string }{
		{"gemini", "", `{"mcpServers": {"pollux": {"command": "pollux", "args": ["bridge"],
			"env": {"ANTHROPIC_API_KEY": "$ANTHROPIC_API_KEY", "HTTPS_PROXY": "$HTTPS_PROXY"}}}}`},
		{"gemini", `{"mcpServers": {"pollux": {"command": "pollux", "args": ["bridge"], "env": {"ANTHROPIC_API_KEY": "mine"}}}}`,
			`{"mcpServers": {"pollux": {"command": "pollux", "args": ["bridge"], "env": {"ANTHROPIC_API_KEY": "mine", "HTTPS_PROXY": "$HTTPS_PROXY"}}}}`},
		{"qwen", "", `{"mcpServers": {"pollux": {"command": "pollux", "args": ["bridge"]}}}`},
		{"codex", "", "[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\ntool_timeout_sec = 1800\n" +
			`env_vars = ["ANTHROPIC_API_KEY", "HTTPS_PROXY", "OPENAI_BASE_URL"]`},
		{"codex", "[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\nenv_vars = [ \"A\", {name = \"B\", source = \"remote\"}, ] # mine\n" +
			"[mcp_servers.pollux.env]\nHTTPS_PROXY = \"mine\"\n",
			"[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\n" +
				`env_vars = ["A", {name = "B", source = "remote"}, "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"]` + "\n" +
				"[mcp_servers.pollux.env]\nHTTPS_PROXY = \"mine\"\n"},
		{"codex", "[mcp_servers.pollux]\ncommand = \"old\"\nargs = [\"bridge\"]\nenv_vars = []\n",
			"[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\n" +
				`env_vars = ["ANTHROPIC_API_KEY", "HTTPS_PROXY", "OPENAI_BASE_URL"]`},
		{"codex", "[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\n", "[mcp_servers.pollux]\ncommand = \"pollux\"\nargs = [\"bridge\"]\n" +
			`env_vars = ["ANTHROPIC_API_KEY", "HTTPS_PROXY", "OPENAI_BASE_URL"]`},
	} {
		c := Clients[slices.IndexFunc(Clients, func(c Client) bool { return c.Name == tt.client })]
		got, err := c.change("linux", tt.old, "pollux", false, variables...)
		if err != nil || !same(t, c, tt.want, got) || strings.Contains(got, "secret") || strings.Contains(tt.old, "# mine") != strings.Contains(got, "# mine") {
			t.Errorf("%s, after %s, gets\n%s\n%v, want\n%s", tt.client, tt.old, got, err, tt.want)
		}
		if again, err := c.change("linux", got, "pollux", false, variables...); err != nil || again != got {
			t.Errorf("%s: the second time changes it to %s, %v", tt.client, again, err)
		}
		if rest, err := c.change("linux", got, "pollux", true); err != nil || strings.Contains(rest, "pollux") {
			t.Errorf("%s: what is left is %s, %v", tt.client, rest, err)
		}
	}
}

// same compares settings by value.
func same(t *testing.T, c Client, a, b string) bool {
	t.Helper()
	decode := func(s string) string {
		var v any
		var err error
		if c.key == "" {
			var m map[string]any
			_, err = toml.Decode(s, &m)
			v = m
		} else {
			err = json.Unmarshal([]byte(s), &v)
		}
		if err != nil {
			return ""
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return decode(a) != "" && decode(a) == decode(b)
}

// A change that the user makes before answering is not overwritten.
func TestInstallNoticesChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kakrc")
	for _, content := range []string{"", "mine\n"} {
		if content != "" {
			systest.WriteFile(t, file, content)
		}
		change := fileChange{path: file, before: content, after: content + "ours\n"}
		p := Plan{changes: []fileChange{change}, fileMode: 0o600, dirMode: 0o700}
		systest.WriteFile(t, file, content+"more of mine\n")
		systest.WantError(t, p.Apply(), "changed since; nothing was written: run this command again")
		systest.WantFile(t, file, content+"more of mine\n")
		p.changes[0].before = content + "more of mine\n"
		if err := p.Apply(); err != nil {
			t.Error(err)
		}
	}
}

// Hostile settings files once blocked the installer or overflowed its stack.
func TestInstallRefusesHostileSettings(t *testing.T) {
	for _, name := range []string{"claude-code", "codex"} {
		for _, kind := range hostile.Kinds {
			t.Run(name+" "+kind, func(t *testing.T) {
				dir := t.TempDir()
				t.Setenv("CLAUDE_CONFIG_DIR", dir)
				t.Setenv("CODEX_HOME", dir)
				c := Clients[slices.IndexFunc(Clients, func(c Client) bool { return c.Name == name })]
				path, err := c.File()
				if err != nil {
					t.Fatal(err)
				}
				hostile.Plant(t, kind, path)
				if name == "codex" && kind == "brackets" { // of a value
					systest.WriteFile(t, path, "a = "+strings.Repeat("[", 1<<20))
				}
				before, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}
				systest.WantError(t, apply(c), path)
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
					t.Errorf("it has changed: %v", err)
				}
			})
		}
	}
}

// The file may hold keys for other servers.
func TestInstallMakesPrivateFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CLAUDE_CONFIG_DIR", dir)
	if err := apply(Clients[0]); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, ".claude.json")); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// apply installs the bridge in a client.
func apply(c Client) error {
	p, err := c.Plan(false)
	if err != nil {
		return err
	}
	return p.Apply()
}

// An update fails halfway: the disk is full, or a file is read-only. Another attempt
// updates the rest, and --remove removes everything. Both were refused.
func TestInstallAfterAFailedUpdate(t *testing.T) {
	for _, remove := range []bool{false, true} {
		systest.SetHome(t, t.TempDir())
		t.Setenv("XDG_CONFIG_HOME", "")
		vim := Editors[slices.IndexFunc(Editors, func(e Editor) bool { return e.Name == "vim" })]
		change := func(remove bool) error {
			p, err := vim.Plan(remove)
			if err == nil {
				err = p.Apply()
			}
			return err
		}
		if err := change(false); err != nil {
			t.Fatal(err)
		}
		dir, err := vim.dir(here())
		if err != nil {
			t.Fatal(err)
		}
		// Turn the installed files into an older version.
		sums := make(map[string]string)
		data, err := os.ReadFile(filepath.Join(dir, manifestName))
		if err == nil {
			err = json.Unmarshal(data, &sums)
		}
		if err != nil {
			t.Fatal(err)
		}
		names := slices.Sorted(maps.Keys(sums))
		for _, name := range names {
			sums[name] = sum("old\n")
			systest.WriteFile(t, filepath.Join(dir, name), "old\n")
		}
		data, err = json.Marshal(sums)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, manifestName), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		last := filepath.Join(dir, names[len(names)-1])
		if err := os.Chmod(last, 0o400); err != nil {
			t.Fatal(err)
		}
		if err := change(false); err == nil {
			t.Fatal("the update did not fail")
		}
		if err := os.Chmod(last, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := change(remove); err != nil {
			t.Errorf("remove %v: %v", remove, err)
		}
		if disk.Exists(last) == remove {
			t.Errorf("remove %v: %s exists: %v", remove, last, !remove)
		}
	}
}

// Each client's entry is written once, follows a program that moved, and goes again.
func TestInstallAgain(t *testing.T) {
	for _, c := range Clients {
		change := func(settings, command string, remove bool) string {
			t.Helper()
			after, err := c.change("linux", settings, command, remove)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			return after
		}
		first := change("", "/old/pollux", false)
		if again := change(first, "/old/pollux", false); again != first {
			t.Errorf("%s: the second time changes it to %s", c.Name, again)
		}
		if moved := change(first, "/new/pollux", false); !strings.Contains(moved, "/new/pollux") || strings.Contains(moved, "/old/pollux") {
			t.Errorf("%s: with another path it is %s", c.Name, moved)
		}
		if rest := change(first, "/old/pollux", true); strings.Contains(rest, "pollux") {
			t.Errorf("%s: what is left is %s", c.Name, rest)
		}
	}
}
